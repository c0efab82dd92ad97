// Package boardseal is what an event of the Board has for content: sealed once for everybody who
// is in the room when it is made, and signed by its author (RELAY, "Durable Board hints": clients
// "verify signed content before acting"). The relay keeps it and reads nothing of it.
//
// Numbers are big-endian, ids the 16 bytes that their text stands for:
//
//	header      version(1) = 1, type(1) created 1 updated 2 comment 3 option_chosen 4 approval 5 closed 6,
//	            kind(1) idea 1 task 2 question 3 decision 4, or 0 of all but created,
//	            room(16), card(16), event(16), author(16),
//	            base(8) the card's revision that the event is based on, 0 of created and comment,
//	            basis(16) the event whose content its author saw on the card, or zeros
//	content     header(91), commitment(32), nonce(24), recipients(2) 1 to 500,
//	            of each, in rising order of participants: participant(16), wrapped key(32+16);
//	            sealed text(its length + 16)
//	signature   Ed25519 of the author over "peerrelay/board-event/v1" 0 content
//
// The text is sealed with XChaCha20-Poly1305 under a random key of its own; that key is wrapped
// in the same way for each recipient, the author too, under
//
//	HKDF-SHA256(ikm  = X25519(own agreement key, the other one's),
//	            salt = room(16),
//	            info = "peerrelay/board/v1" 0 author(16) recipient(16),
//	            32 bytes)
//
// with the header as additional data and the one nonce, which is random: no two of these keys are
// the same. commitment is SHA-256("peerrelay/board-key/v1" 0 key): everybody who opens an
// event sees the same text, whatever its author tried to show to some of them.
//
// Content has at most 65,536 bytes. For n recipients that leaves 65,371 - 64 n for the text:
// 65,243 for two, 33,371 for 500.
//
// What is bound: an event cannot be shown as another one, on another card or in another room, as
// of another author, type or base; and an approval says with basis what was approved. What is
// not: the relay can withhold events, and choose the order of comments. The keys of
// devices last, so there is no forward secrecy; who joins later cannot open what is older.
// testdata/vectors.json has examples for programs in other languages, made by another
// implementation.
package boardseal
