package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// maxLookup bounds one Lookup; a room has at most half as many participants.
const maxLookup = 1000

type presenceValue struct {
	Node  string `json:"node"`
	Since int64  `json:"since"` // Unix milliseconds
	RTT   int64  `json:"rtt_ms"`
}

// PutPresence says that a participant is connected to this node; Node is filled in.
// It is sent without waiting and may be lost; the entry expires 90 s after the last one.
func (n *Node) PutPresence(p Presence) error {
	value := make([]byte, 0, 160)
	value = append(value, `{"node":"`...)
	value = append(value, n.cfg.NodeID...) // letters, digits, '-', '_' only
	value = append(value, `","since":`...)
	value = strconv.AppendInt(value, p.Since.UnixMilli(), 10)
	value = append(value, `,"rtt_ms":`...)
	value = strconv.AppendInt(value, p.RTT.Milliseconds(), 10)
	value = append(value, '}')
	return n.cfg.Conn.Publish(presencePrefix+p.Participant.String(), value)
}

// DeletePresence says that a participant's last connection here is gone. Like
// PutPresence it does not wait.
func (n *Node) DeletePresence(participant uuid.UUID) error {
	marker := nats.NewMsg(presencePrefix + participant.String())
	marker.Header.Set("KV-Operation", "DEL")
	return n.cfg.Conn.PublishMsg(marker)
}

// Lookup returns the presence of those participants (at most 1,000) that are
// connected somewhere, in no order. A replica may answer with what was true a moment ago,
// and whom a dead node had is present for PresenceTTL after its last word.
func (n *Node) Lookup(ctx context.Context, participants []uuid.UUID) ([]Presence, error) {
	if len(participants) == 0 {
		return nil, nil
	}
	if len(participants) > maxLookup {
		return nil, fmt.Errorf("look up presence of %d participants: at most %d", len(participants), maxLookup)
	}
	subjects := make([]string, len(participants))
	for i, id := range participants {
		subjects[i] = presencePrefix + id.String()
	}
	rows, err := jetstreamext.GetLastMsgsFor(ctx, n.js, presenceStream, subjects)
	if err != nil {
		return nil, fmt.Errorf("look up presence: %w", err)
	}
	var found []Presence
	for row, err := range rows {
		if errors.Is(err, jetstreamext.ErrNoMessages) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("look up presence: %w", err)
		}
		if p, ok := decodePresence(row.Subject, row.Header, row.Data); ok {
			p.Seen = row.Time.UTC()
			found = append(found, p)
		}
	}
	return found, nil
}

func decodePresence(subject string, header nats.Header, data []byte) (Presence, bool) {
	if header.Get("KV-Operation") != "" {
		return Presence{}, false
	}
	id, err := uuid.Parse(strings.TrimPrefix(subject, presencePrefix))
	if err != nil {
		return Presence{}, false
	}
	var value presenceValue
	if json.Unmarshal(data, &value) != nil {
		return Presence{}, false
	}
	return Presence{
		Participant: id,
		Node:        value.Node,
		Since:       time.UnixMilli(value.Since).UTC(),
		RTT:         time.Duration(value.RTT) * time.Millisecond,
	}, true
}

// presenceCheck is how many lease renewals pass between two looks for the bucket.
const presenceCheck = 10

// keepPresence makes the bucket of presence again where it is gone: it is in memory, and
// a server that stores nothing else about it forgets it when its JetStream starts anew.
func (n *Node) keepPresence(ctx context.Context) {
	every := presenceCheck * n.cfg.RenewEvery
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	_, presence := n.cfg.bucketConfigs()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		attempt, cancel := context.WithTimeout(ctx, every)
		_, err := n.js.Stream(attempt, presenceStream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if _, err = n.js.CreateOrUpdateStream(attempt, presence); err == nil {
				n.log.Warn("bucket of presence was gone and is made anew")
			}
		}
		cancel()
	}
}
