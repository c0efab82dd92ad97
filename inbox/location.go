package inbox

import "github.com/google/uuid"

// Location names the stream and the subject of one inbox.
func (j *JetStream) Location(room, participant uuid.UUID) (stream, subject string) {
	c := j.committerOf(room)
	return c.stream, string(appendSubject(nil, c.token, room, participant))
}
