package api

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/peerrelay/peerrelay/store"
)

const (
	defaultRows = 100     // of a page, where the request does not say
	readRows    = 64      // asked of the store at once: of the largest rows, a page of bytes
	pageBytes   = 4 << 20 // of envelopes in one page, before they are base64
)

// The lists that have a position per row. A cursor is of one of them, and of one order.
const (
	listHistory byte = 'h'
	listNotices byte = 'n'
	listTraces  byte = 't'
)

// list is one request for a page.
type list struct {
	kind   byte
	page   store.Page // Limit is that of one read, not of the page
	limit  int
	cursor string       // as it came, until it is read; empty: none
	seal   cipher.Block // hides what is in cursors
}

// readQuery returns the members of the query, each of which must be known and be there
// once, with a value.
func readQuery(r *http.Request, known ...string) (map[string]string, error) {
	members, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, malformed("the query could not be read")
	}
	query := make(map[string]string, len(members))
	for name, values := range members {
		if !slices.Contains(known, name) {
			return nil, malformed("the query has a member that this request does not take")
		}
		if len(values) != 1 || values[0] == "" {
			return nil, malformed(name + " must be there once, with a value, or not at all")
		}
		query[name] = values[0]
	}
	return query, nil
}

// readList reads limit, cursor and order.
func readList(query map[string]string, kind byte, newest bool) (*list, error) {
	l := &list{kind: kind, limit: defaultRows, page: store.Page{Newest: newest}}
	switch query["order"] {
	case "":
	case "oldest":
		l.page.Newest = false
	case "newest":
		l.page.Newest = true
	default:
		return nil, malformed("order must be oldest or newest")
	}
	if text, given := query["limit"]; given {
		limit, err := readLimit(text)
		if err != nil {
			return nil, err
		}
		l.limit = limit
	}
	l.cursor = query["cursor"]
	return l, nil
}

// open reads the list's cursor, and lets it make others. Positions rise over all tenants,
// and are hidden from their people: whoever could read two could count what others stored
// in between.
func (op *operation) open(l *list) error {
	key, err := op.api.cursorKeys.get(op.ctx, op.tenant, op.api.cfg.Store.CursorKey)
	if err != nil {
		return err
	}
	if l.seal, err = aes.NewCipher(key[:]); err != nil {
		return fmt.Errorf("seal cursors: %w", err)
	}
	if l.cursor == "" {
		return nil
	}
	return l.decode(l.cursor)
}

func readLimit(text string) (int, error) {
	limit, err := strconv.ParseUint(text, 10, 16)
	if err != nil || limit < 1 || limit > store.MaxPage || text[0] == '0' || text[0] == '+' {
		return 0, malformed("limit must be 1 to 500")
	}
	return int(limit), nil
}

// encode makes a cursor that continues after (in the list's order) the row at position: one
// block of the cipher, most of it zeros that say whether it was one of ours.
func (l *list) encode() string {
	var block [aes.BlockSize]byte
	block[0], block[1] = l.kind, l.orderByte()
	binary.BigEndian.PutUint64(block[8:], uint64(l.page.From))
	l.seal.Encrypt(block[:], block[:])
	return base64.RawURLEncoding.EncodeToString(block[:])
}

func (l *list) decode(text string) error {
	var block, plain [aes.BlockSize]byte
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || copy(block[:], raw) != len(raw) || len(raw) != len(block) {
		return errCursor
	}
	l.seal.Decrypt(plain[:], block[:])
	if [8]byte(plain[:8]) != [8]byte{l.kind, l.orderByte()} {
		return errCursor
	}
	if l.page.From = int64(binary.BigEndian.Uint64(plain[8:])); l.page.From < 1 {
		return errCursor
	}
	return nil
}

var errCursor = malformed("cursor is not one that this list has handed out in this order")

func (l *list) orderByte() byte {
	if l.page.Newest {
		return '>'
	}
	return '<'
}

// rowFacts is what a page needs to know of a row.
type rowFacts struct {
	position int64
	stored   time.Time
	bytes    int
}

// collect reads one page, in pieces, until it has enough rows or enough bytes (but at
// least one row). The cursor is empty on the last page.
func collect[R any](l *list, read func(store.Page) ([]R, bool, error), facts func(*R) rowFacts) (rows []R, cursor string, err error) {
	size := 0
	for more := true; more; {
		if len(rows) == l.limit {
			return rows, l.encode(), nil
		}
		l.page.Limit = min(readRows, l.limit-len(rows))
		var piece []R
		if piece, more, err = read(l.page); err != nil {
			return nil, "", err
		}
		more = more && len(piece) > 0
		for i := range piece {
			row := facts(&piece[i])
			if row.stored.Before(l.page.Since) { // the store leaves these out; a participant must not see one
				l.page.From = row.position
				continue
			}
			if size += row.bytes; size > pageBytes && len(rows) > 0 {
				return rows, l.encode(), nil
			}
			rows = append(rows, piece[i])
			l.page.From = row.position
		}
	}
	return rows, "", nil
}
