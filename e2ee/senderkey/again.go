package senderkey

import (
	"encoding/binary"
	"slices"

	"github.com/peerrelay/peerrelay/wire"
)

// Written is when a message was written, as its sender signed it: by ts, and where that is the
// same, by seq.
type Written struct{ TS, Seq uint64 }

func (w Written) after(other Written) bool {
	return w.TS > other.TS || w.TS == other.TS && w.Seq > other.Seq
}

// again is what a sender that went back to an old copy of its state may use once more: each
// iteration that was used before is open to one more message, if that was written after all that were
// opened by then. So what it says is read, and nothing that was opened is opened a second time,
// whatever comes again and whoever gives the key.
type again struct {
	after Written
	next  uint32             // the iterations are those before it, at most RepairWindow
	open  [RepairWindow]bool // by iteration % RepairWindow
	keys  []skippedKey       // of open iterations, once the key was asked for and came; rising
}

// takes reports whether a message may use an iteration once more.
func (a *again) takes(iteration uint32, m *Message) bool {
	return a != nil && iteration < a.next && a.next-iteration <= RepairWindow && a.open[iteration%RepairWindow] && m.Written.after(a.after)
}

func (a *again) used(iteration uint32) {
	a.open[iteration%RepairWindow] = false
	if at, ok := find(a.keys, iteration); ok {
		a.keys = slices.Delete(a.keys, at, at+1)
	}
}

// openSpent opens a message of an iteration whose key was used or dropped.
func (c *chain) openSpent(iteration uint32, m *Message, stale func(error) error) ([]byte, error) {
	if !c.again.takes(iteration, m) {
		if m.Written.after(c.newest) {
			return nil, stale(ErrSpent)
		}
		return nil, ErrDuplicate
	}
	at, ok := find(c.again.keys, iteration)
	if !ok {
		return nil, stale(ErrSpent)
	}
	plaintext, err := openWith(c.again.keys[at].key, iteration, m)
	if err != nil {
		return nil, stale(err)
	}
	c.again.used(iteration)
	c.opened(m)
	return plaintext, nil
}

// opened notes when a message was written.
func (c *chain) opened(m *Message) {
	if m.Written.after(c.newest) {
		c.newest = m.Written
	}
}

// Spent takes a message that Open said ErrSpent of, and whose key is being asked for: what its sender
// wrote since goes on at used iterations.
func (r *Receivers) Spent(m *Message) {
	p := r.peers[m.From]
	if p == nil || len(m.CT) < prefixSize {
		return
	}
	c, iteration := p.find(m.KID, m.Gen), binary.BigEndian.Uint32(m.CT)
	if c == nil || iteration >= c.next || c.again.takes(iteration, m) || !m.Written.after(c.newest) {
		return
	}
	c.again = &again{after: c.newest, next: c.next}
	for i := max(c.start, c.next-min(c.next, RepairWindow)); i < c.next; i++ {
		_, kept := find(c.skipped, i)
		c.again.open[i%RepairWindow] = !kept
	}
}

// giveAgain takes the keys of used iterations from a distribution that was merged.
func (c *chain) giveAgain(d Distribution) {
	a := c.again
	if a == nil || d.Iteration >= a.next {
		return
	}
	spent := chain{next: d.Iteration, ck: d.CK}
	if gap := a.next - d.Iteration; gap > RepairWindow {
		spent = chain{next: a.next - RepairWindow, ck: spent.ck.after(gap - RepairWindow)}
	}
	a.keys = slices.DeleteFunc(spent.advance(a.next), func(k skippedKey) bool { return !a.open[k.iteration%RepairWindow] })
}

// appendTo has a zero for none.
func (a *again) appendTo(b []byte) []byte {
	if a == nil {
		return append(b, 0)
	}
	b = a.after.appendTo(append(b, 1))
	b = binary.BigEndian.AppendUint32(b, a.next)
	var bits [RepairWindow / 8]byte
	for i, open := range a.open {
		if open {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return appendKeys(append(b, bits[:]...), a.keys)
}

func (w Written) appendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, w.TS), w.Seq)
}

func (r *reader) written() Written { return Written{TS: r.integer(), Seq: r.integer()} }

// readAgain reads what appendTo wrote, of a chain that was read.
func readAgain(r *reader, c *chain) *again {
	if !r.flag() {
		return nil
	}
	a := &again{after: r.written(), next: r.uint32(MaxIterations)}
	r.must(a.next > 0 && a.next <= c.next && !a.after.after(c.newest))
	for i, bits := range r.take(RepairWindow / 8) {
		for bit := range 8 {
			a.open[8*i+bit] = bits&(1<<bit) != 0
		}
	}
	a.keys = r.keys(RepairWindow, a.next-min(a.next, RepairWindow), a.next)
	for _, k := range a.keys {
		r.must(a.open[k.iteration%RepairWindow])
	}
	return a
}

// neverAgain is the newest of a chain of which it is not known what was opened.
var neverAgain = Written{TS: wire.MaxInteger, Seq: wire.MaxInteger}
