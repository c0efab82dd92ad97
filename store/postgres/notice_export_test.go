package postgres

// NoticeWaiters is how many notices of a room may wait.
const NoticeWaiters = noticeWaiters

// NoticesWaiting is in how many rooms somebody writes notices, and how many wait there.
func (s *Store) NoticesWaiting() (rooms, waiting int) {
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	for _, w := range s.notices.rooms {
		waiting += len(w)
	}
	return len(s.notices.rooms), waiting
}
