package client

// MaxCredentials is how many rooms a device keeps credentials of.
const MaxCredentials = maxCredentials

// ErrAnswer is what an answer is that no relay gives.
var ErrAnswer = errAnswer

// DecodeContent reads the content of a Board event.
var DecodeContent = decodeContent

// KeptCredentials looks for the credentials of rooms, and returns of how many there are any.
func (d *Device) KeptCredentials(rooms ...string) int {
	for _, room := range rooms {
		d.credentials.of(room)
	}
	d.credentials.mu.Lock()
	defer d.credentials.mu.Unlock()
	return len(d.credentials.rooms)
}
