package remote

// Waiting is how many messages and traces wait to be sent.
func (s *Store) Waiting() int { return len(s.messages.queue) + len(s.traces.queue) }
