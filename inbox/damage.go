package inbox

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
)

// metadataIncarnation is a stream's incarnation when it is no longer its creation time.
const metadataIncarnation = "relay_incarnation"

// incarnationOf is the first half of the stream ids of a stream's rows.
func incarnationOf(info *jetstream.StreamInfo) uint64 {
	created := uint64(info.Created.UnixMilli())
	renewed, err := strconv.ParseUint(info.Config.Metadata[metadataIncarnation], 10, 64)
	if err != nil {
		return created
	}
	return max(created, renewed)
}

// renewIfShort makes a stream that has lost its newest rows a new incarnation, and
// returns it as it is then. It goes on with the sequences it still knows, so an id
// would be used again for another row, and a cursor would jump over what is gone;
// now every cursor from before is a gap, and what is retained follows (FAULTS C05).
// Several nodes that find the same loss arrive at the same incarnation.
func (c Config) renewIfShort(ctx context.Context, js jetstream.JetStream, info *jetstream.StreamInfo, lastKnown uint64) (*jetstream.StreamInfo, error) {
	if info.State.LastSeq >= lastKnown {
		return info, nil
	}
	config := info.Config
	config.Metadata = maps.Clone(config.Metadata)
	config.Metadata[metadataIncarnation] = strconv.FormatUint(incarnationOf(info)+1, 10)
	c.Logger.ErrorContext(ctx, "inbox stream has lost, or may have lost, its newest rows: clients will resync",
		"stream", config.Name, "last", info.State.LastSeq, "last_known", lastKnown)
	stream, err := js.UpdateStream(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("make stream %s a new incarnation: %w", config.Name, err)
	}
	return stream.CachedInfo(), nil
}
