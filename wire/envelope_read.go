package wire

import "unicode/utf8"

// read fills e from a scanned object. It reads on after a fault, since a nack
// needs the id and a viewer's refusal the kind; the first fault is kept.
func (e *Envelope) read(o *object) {
	e.Raw = o.data
	e.Members = Members(o.seen & (1<<envelopeMembers - 1))
	if o.unknown || o.seen>>envelopeMembers != 0 {
		e.Members |= MemberUnknown
	}
	e.readKind(o)
	if !e.Members.Has(requiredMembers) {
		e.refuse(faultMissing)
	}
	if v, ok := o.integer(inV, MaxInteger); !ok || v != Version {
		e.refuse(faultVersion)
	}
	e.readTexts(o)
	e.readIntegers(o)
	if e.Members.Has(MemberFile) {
		e.refuse(e.File.read(o))
	}
}

// refuse keeps the first fault.
func (e *Envelope) refuse(f fault) {
	if e.fault == faultNone {
		e.fault = f
	}
}

func (e *Envelope) readKind(o *object) {
	text, _ := o.text(inKind)
	e.Kind = kindOf(text)
	switch {
	case e.Kind == 0:
		e.refuse(faultKind)
	case e.Kind != KindNotice:
	case e.Members&^noticeMembers != 0:
		e.refuse(faultNoticeMember)
	case !e.Members.Has(MemberExpiresAt):
		e.refuse(faultNoticeExpiry)
	}
}

func kindOf(text []byte) Kind {
	switch string(text) {
	case "message":
		return KindMessage
	case "notice":
		return KindNotice
	case "senderkey":
		return KindSenderKey
	case "control":
		return KindControl
	case "key_request":
		return KindKeyRequest
	}
	return 0
}

func (e *Envelope) readTexts(o *object) {
	e.ID = e.readText(o, inID)
	if !ValidID(e.ID) {
		e.ID = nil
		e.refuse(faultID)
	}
	e.SessionID = e.readText(o, inSessionID)
	e.From = e.readText(o, inFrom)
	e.To = e.readText(o, inTo)
	e.Enc = e.readText(o, inEnc)
	e.KID = e.readText(o, inKID)
	if e.Members.Has(MemberKID) && !validKID(e.KID) {
		e.refuse(faultKID)
	}
	// The relay has no use for these, but what it stores must be well formed.
	for _, m := range [...]member{inNonce, inCT, inSig, inHdr} {
		if o.has(m) && (o.tokens[m].kind != tokenString || o.tokens[m].nul) {
			e.refuse(faultText)
		}
	}
}

func (e *Envelope) readText(o *object, m member) []byte {
	text, ok := o.text(m)
	if o.has(m) && (!ok || o.tokens[m].nul) {
		e.refuse(faultText)
	}
	return text
}

func (e *Envelope) readIntegers(o *object) {
	e.Gen = e.readInteger(o, inGen)
	e.Seq = e.readInteger(o, inSeq)
	e.TS = e.readInteger(o, inTS)
	e.ExpiresAt = e.readInteger(o, inExpiresAt)
}

func (e *Envelope) readInteger(o *object, m member) uint64 {
	n, ok := o.integer(m, MaxInteger)
	if ok {
		return n
	}
	if o.has(m) {
		e.refuse(faultInteger)
	}
	return 0
}

// ValidID reports whether an envelope id is 1 to 128 printable ASCII characters,
// none of them a space.
func ValidID(id []byte) bool {
	if len(id) == 0 || len(id) > MaxIDLength {
		return false
	}
	for _, c := range id {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// validKID reports whether a sender key id is 16 bytes in base64url (RELAY,
// "Sender-key identity").
func validKID(kid []byte) bool {
	if len(kid) != 22 {
		return false
	}
	for _, c := range kid {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// read fills f from the file member and returns the rule it breaks.
func (f *File) read(o *object) fault {
	if o.tokens[inFile].kind != tokenObject {
		return faultFile
	}
	s := scanner{data: o.raw(inFile), maxDepth: MaxDepth}
	var name, value, size token
	var seen uint8
	s.open()
	for s.next(&name, &value) {
		var bit uint8
		switch string(name.decode(s.data)) {
		case "name":
			bit = 1
			f.Name = value.label(s.data, MaxFileName)
		case "mimeType":
			bit = 2
			f.MIMEType = value.label(s.data, MaxMIMEType)
		case "sizeBytes":
			bit = 4
			size = value
		}
		if bit == 0 || seen&bit != 0 {
			return faultFileMember
		}
		seen |= bit
	}
	return f.check(seen, &size, s.data)
}

func (f *File) check(seen uint8, size *token, data []byte) fault {
	switch {
	case seen != 1|2|4:
		return faultFileMember
	case f.Name == nil:
		return faultFileName
	case f.MIMEType == nil:
		return faultFileType
	case size.kind != tokenInteger:
		return faultFileSize
	}
	n, ok := parseUint(data[size.start:size.end])
	if !ok || n > MaxFileSize {
		return faultFileSize
	}
	f.SizeBytes = n
	return faultNone
}

// label returns a file's name or type, nil when it is not a string of 1 to limit
// code points that may be shown on one line: none of category Cc, no U+2028, no
// U+2029 (RELAY).
func (t *token) label(data []byte, limit int) []byte {
	if t.kind != tokenString || t.start == t.end {
		return nil
	}
	text := t.decode(data)
	if !validLabel(text, limit) {
		return nil
	}
	return text
}

func validLabel(text []byte, limit int) bool {
	if len(text) == 0 || utf8.RuneCount(text) > limit {
		return false
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r < ' ' || r >= 0x7F && r <= 0x9F || r == 0x2028 || r == 0x2029 {
			return false
		}
		i += size
	}
	return true
}

// ValidFileName reports whether a file's name keeps the rules of the file header (RELAY):
// 1 to MaxFileName code points, none of category Cc, no U+2028, no U+2029.
func ValidFileName(name string) bool {
	return utf8.ValidString(name) && validLabel([]byte(name), MaxFileName)
}

// ValidMIMEType is ValidFileName for a file's type, of 1 to MaxMIMEType code points.
func ValidMIMEType(name string) bool {
	return utf8.ValidString(name) && validLabel([]byte(name), MaxMIMEType)
}
