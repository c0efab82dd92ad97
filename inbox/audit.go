package inbox

import (
	"encoding/json"
	"strings"

	"github.com/nats-io/nats.go"
)

// apiAudit is where the server tells of every administrative request, with the
// subject of the request (jetstream advisory v1 api_audit).
const apiAudit = "$JS.EVENT.ADVISORY.API"

// watchAudit keeps memory true when people change a stream by hand: purged and
// deleted rows must not be served from memory, and another stream is another
// incarnation. Publishing by hand needs no watching; it shows in the sequences.
func (j *JetStream) watchAudit() error {
	_, err := j.conn.Subscribe(apiAudit, func(msg *nats.Msg) {
		var audit struct {
			Subject string `json:"subject"`
			Client  struct {
				Name string `json:"name"`
			} `json:"client"`
		}
		if json.Unmarshal(msg.Data, &audit) != nil || audit.Client.Name == publisherName {
			return
		}
		at := strings.LastIndexByte(audit.Subject, '.')
		if at < 0 {
			return
		}
		shard, ours := shardOfStream(audit.Subject[at+1:])
		if !ours || shard >= len(j.committers) {
			return
		}
		switch audit.Subject[:at] {
		case "$JS.API.STREAM.PURGE", "$JS.API.STREAM.MSG.DELETE":
			signal(j.committers[shard].rowsRemoved)
		case "$JS.API.STREAM.DELETE", "$JS.API.STREAM.CREATE", "$JS.API.STREAM.UPDATE", "$JS.API.STREAM.RESTORE":
			j.committers[shard].nudge()
		}
	})
	return err
}
