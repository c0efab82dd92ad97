// Package mls reads of MLS messages (RFC 9420) what a delivery service has to know to order
// commits (RFC 9750 section 5): which group and epoch a message is of, and what kind it is.
// All of it is in clear in the messages. It holds no key and verifies nothing: a message
// that Parse accepts may still be one that no member can apply.
//
// The outer structure, in the presentation language of RFC 9420; <V> is a vector with a
// length of its own (section 2.1.2):
//
//	MLSMessage      uint16 version = 1, uint16 wire_format, then one of
//	1 PublicMessage   opaque group_id<V>, uint64 epoch, Sender, opaque authenticated_data<V>, uint8 content_type, ...
//	2 PrivateMessage  opaque group_id<V>, uint64 epoch, uint8 content_type, opaque authenticated_data<V>,
//	                  opaque encrypted_sender_data<V>, opaque ciphertext<V>
//	3 Welcome         uint16 cipher_suite, EncryptedGroupSecrets secrets<V>, opaque encrypted_group_info<V>
//	4 GroupInfo       GroupContext, Extension extensions<V>, opaque confirmation_tag<V>, uint32 signer, opaque signature<V>
//	5 KeyPackage      ...
//	Sender          uint8 sender_type, then uint32 of a member (leaf_index) or of an external sender (sender_index)
//	GroupContext    uint16 version = 1, uint16 cipher_suite, opaque group_id<V>, uint64 epoch, opaque tree_hash<V>,
//	                opaque confirmed_transcript_hash<V>, Extension extensions<V>
//
// What is shown as "..." is not read.
package mls
