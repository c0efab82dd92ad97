package wire

import "bytes"

// member is a known name at the top level of a frame. The first ones are those of
// an envelope, in the order of their bits in Members.
type member uint8

const (
	inV member = iota
	inID
	inSessionID
	inFrom
	inTo
	inKind
	inGen
	inSeq
	inTS
	inNonce
	inCT
	inKID
	inSig
	inEnc
	inFile
	inHdr
	inExpiresAt
	envelopeMembers // how many they are

	inType member = iota - 1
	inToken
	inDirect
	inLastID
	inLimit
	inParticipantID
	inStreamID
	inReplay
	inEnvelope
	inReason
	inReplayed
	inMore
	inOldestID
	inEventID
	inCardID
	inRevision
	inFrameType
	inDetail
	inEvent
	inRoomID
	inVersion
	inDeviceID
	inRole
	inEpoch
	inRemaining
	members
)

var memberNames = [members]string{
	inV:             "v",
	inID:            "id",
	inSessionID:     "session_id",
	inFrom:          "from",
	inTo:            "to",
	inKind:          "kind",
	inGen:           "gen",
	inSeq:           "seq",
	inTS:            "ts",
	inNonce:         "nonce",
	inCT:            "ct",
	inKID:           "kid",
	inSig:           "sig",
	inEnc:           "enc",
	inFile:          "file",
	inHdr:           "hdr",
	inExpiresAt:     "expires_at",
	inType:          "type",
	inToken:         "token",
	inDirect:        "direct",
	inLastID:        "last_id",
	inLimit:         "limit",
	inParticipantID: "participant_id",
	inStreamID:      "stream_id",
	inReplay:        "replay",
	inEnvelope:      "envelope",
	inReason:        "reason",
	inReplayed:      "replayed",
	inMore:          "more",
	inOldestID:      "oldest_id",
	inEventID:       "event_id",
	inCardID:        "card_id",
	inRevision:      "revision",
	inFrameType:     "frame_type",
	inDetail:        "detail",
	inEvent:         "event",
	inRoomID:        "room_id",
	inVersion:       "version",
	inDeviceID:      "device_id",
	inRole:          "role",
	inEpoch:         "epoch",
	inRemaining:     "remaining",
}

// memberOf is memberNames the other way round, as a switch, which is faster than
// a map.
func memberOf(name []byte) (member, bool) {
	switch string(name) {
	case "v":
		return inV, true
	case "id":
		return inID, true
	case "session_id":
		return inSessionID, true
	case "from":
		return inFrom, true
	case "to":
		return inTo, true
	case "kind":
		return inKind, true
	case "gen":
		return inGen, true
	case "seq":
		return inSeq, true
	case "ts":
		return inTS, true
	case "nonce":
		return inNonce, true
	case "ct":
		return inCT, true
	case "kid":
		return inKID, true
	case "sig":
		return inSig, true
	case "enc":
		return inEnc, true
	case "file":
		return inFile, true
	case "hdr":
		return inHdr, true
	case "expires_at":
		return inExpiresAt, true
	case "type":
		return inType, true
	case "token":
		return inToken, true
	case "direct":
		return inDirect, true
	case "last_id":
		return inLastID, true
	case "limit":
		return inLimit, true
	case "participant_id":
		return inParticipantID, true
	case "stream_id":
		return inStreamID, true
	case "replay":
		return inReplay, true
	case "envelope":
		return inEnvelope, true
	case "reason":
		return inReason, true
	case "replayed":
		return inReplayed, true
	case "more":
		return inMore, true
	case "oldest_id":
		return inOldestID, true
	case "event_id":
		return inEventID, true
	case "card_id":
		return inCardID, true
	case "revision":
		return inRevision, true
	case "frame_type":
		return inFrameType, true
	case "detail":
		return inDetail, true
	case "event":
		return inEvent, true
	case "room_id":
		return inRoomID, true
	case "version":
		return inVersion, true
	case "device_id":
		return inDeviceID, true
	case "role":
		return inRole, true
	case "epoch":
		return inEpoch, true
	case "remaining":
		return inRemaining, true
	}
	return 0, false
}

// object is a frame taken apart: where the values of its known members lie.
type object struct {
	data    []byte
	tokens  [members]token
	seen    uint64 // one bit per known member
	unknown bool   // at least one other name
	twice   uint64 // known members whose name came again
	clash   bool   // id came again with another value
}

// scan reads data to its end even when a name is there twice, so that type and id
// are known wherever they stand; a fault of the JSON itself ends it.
func (o *object) scan(data []byte, maxDepth int) fault {
	o.data = data
	s := scanner{data: data, maxDepth: maxDepth}
	var others nameSet
	var name, value token
	duplicate := faultNone
	if !s.open() {
		return s.fault
	}
	for s.next(&name, &value) {
		text := name.decode(data)
		known, ok := memberOf(text)
		if !ok {
			o.unknown = true
			if !others.add(text) {
				duplicate = faultDuplicate
			}
			continue
		}
		if o.has(known) {
			duplicate = faultDuplicate
			o.again(known, &value)
			continue
		}
		o.seen |= 1 << known
		o.tokens[known] = value
	}
	if s.fault != faultNone || !s.end() {
		return s.fault
	}
	return duplicate
}

func (o *object) again(known member, value *token) {
	o.twice |= 1 << known
	if known != inID {
		return
	}
	first := &o.tokens[inID]
	if first.kind != tokenString || value.kind != tokenString || !bytes.Equal(first.decode(o.data), value.decode(o.data)) {
		o.clash = true
	}
}

func (o *object) has(m member) bool { return o.seen&(1<<m) != 0 }

// raw returns the bytes of a member's value, for a string without its quotes.
func (o *object) raw(m member) []byte {
	t := &o.tokens[m]
	return o.data[t.start:t.end:t.end]
}

// text returns a string member, decoded; ok is false when it is none.
func (o *object) text(m member) (text []byte, ok bool) {
	t := &o.tokens[m]
	if t.kind != tokenString {
		return nil, false
	}
	return t.decode(o.data), true
}

// integer returns an integer member; ok is false when it is none or over limit.
func (o *object) integer(m member, limit uint64) (n uint64, ok bool) {
	t := &o.tokens[m]
	if t.kind != tokenInteger {
		return 0, false
	}
	n, ok = parseUint(o.data[t.start:t.end])
	return n, ok && n <= limit
}

// boolean returns a true or false member.
func (o *object) boolean(m member) (value, ok bool) {
	kind := o.tokens[m].kind
	return kind == tokenTrue, kind == tokenTrue || kind == tokenFalse
}

// nameSet finds a name that comes twice. A few names are compared with each other
// in place; the map for many costs memory only a frame with many unknown names
// uses, and a frame is at most 64 KiB.
type nameSet struct {
	few  [8][]byte
	n    int
	many map[string]struct{}
}

// add returns false when the name is there already.
func (s *nameSet) add(name []byte) bool {
	if s.many != nil {
		if _, ok := s.many[string(name)]; ok {
			return false
		}
		s.many[string(name)] = struct{}{}
		return true
	}
	for _, other := range s.few[:s.n] {
		if bytes.Equal(other, name) {
			return false
		}
	}
	if s.n < len(s.few) {
		s.few[s.n] = name
		s.n++
		return true
	}
	s.many = make(map[string]struct{}, 4*len(s.few))
	for _, other := range s.few {
		s.many[string(other)] = struct{}{}
	}
	s.many[string(name)] = struct{}{}
	return true
}
