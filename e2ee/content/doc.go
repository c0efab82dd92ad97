// Package content is what is inside of an encrypted message, the same in all schemes:
//
//	{"parts":[PART…],"v":1}
//
//	{"text":…,"type":"text"}
//	{"data":…,"mime_type":…,"name":…,"size_bytes":…,"type":"file"}
//	{"count":…,"data":…,"file_id":…,"index":…,"mime_type":…,"name":…,"sha256":…,"size_bytes":…,"type":"chunk"}
//
// text and file are those of rooms without encryption (docs/protocol.md). data is base64 of
// the standard alphabet with padding, as are sha256, of the whole file, and file_id, of 16
// random bytes, which is base64url without. Names and types keep the rules of the file header
// (RELAY). A part has all of its members and no other; Encode writes the canonical form (RFC
// 8785), Decode reads any with that form.
//
// A payload has no author, no room and no time: those are the signed envelope's (FAULTS J05).
//
// A file of up to InlineFile bytes is one part. A larger one, of up to MaxFile, is split into
// chunks of ChunkSize bytes, the last one being the rest, each in a message of its own. Every
// chunk says the same of the whole, so that they may come in any order.
package content
