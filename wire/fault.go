package wire

// fault is one rule that a frame broke. It is a number, so that finding one costs
// nothing, and every fault of an envelope is one *Error made beforehand.
type fault uint8

const (
	faultNone fault = iota

	// Not one well-formed object: errors of ParseClient and ParseServer.
	faultSize
	faultNotObject
	faultSyntax
	faultTrailing
	faultUTF8
	faultSurrogate
	faultDepth
	faultDuplicate

	// An object, but no envelope: answers of Envelope.Check.
	faultMissing
	faultVersion
	faultID
	faultText
	faultInteger
	faultKind
	faultKID
	faultFile
	faultFileMember
	faultFileName
	faultFileType
	faultFileSize
	faultNoticeMember
	faultNoticeExpiry
)

// errors of faults, all with InvalidEnvelope.
var faultErrors = [...]Error{
	faultSize:         {InvalidEnvelope, "the message is too large"},
	faultNotObject:    {InvalidEnvelope, "the message is not a JSON object"},
	faultSyntax:       {InvalidEnvelope, "the message is not valid JSON"},
	faultTrailing:     {InvalidEnvelope, "something follows the JSON object"},
	faultUTF8:         {InvalidEnvelope, "the message is not valid UTF-8"},
	faultSurrogate:    {InvalidEnvelope, "a string holds half a surrogate pair"},
	faultDepth:        {InvalidEnvelope, "objects or arrays are nested too deeply"},
	faultDuplicate:    {InvalidEnvelope, "a member name is there twice"},
	faultMissing:      {InvalidEnvelope, "a required member is missing"},
	faultVersion:      {InvalidEnvelope, "v is not 1"},
	faultID:           {InvalidEnvelope, "id is not 1 to 128 printable ASCII characters without space"},
	faultText:         {InvalidEnvelope, "a member that must be a string is none, or holds U+0000"},
	faultInteger:      {InvalidEnvelope, "a member that must be an integer is not plain digits up to 2^53-1"},
	faultKind:         {InvalidEnvelope, "kind is not one of the five"},
	faultKID:          {InvalidEnvelope, "kid is not 22 base64url characters"},
	faultFile:         {InvalidEnvelope, "file is not an object"},
	faultFileMember:   {InvalidEnvelope, "file does not have exactly name, mimeType and sizeBytes, each once"},
	faultFileName:     {InvalidEnvelope, "file.name is not 1 to 255 code points without control characters"},
	faultFileType:     {InvalidEnvelope, "file.mimeType is not 1 to 127 code points without control characters"},
	faultFileSize:     {InvalidEnvelope, "file.sizeBytes is not an integer from 0 to 700000"},
	faultNoticeMember: {InvalidEnvelope, "a notice has a member that notices do not have"},
	faultNoticeExpiry: {InvalidEnvelope, "a notice has no expires_at"},
}

// err returns nil for faultNone.
func (f fault) err() *Error {
	if f == faultNone {
		return nil
	}
	return &faultErrors[f]
}

// OnlyFileInvalid reports that the envelope keeps every rule but those of its file
// header.
func (e *Envelope) OnlyFileInvalid() bool {
	return e.fault >= faultFile && e.fault <= faultFileSize
}
