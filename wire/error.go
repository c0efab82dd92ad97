package wire

// Error is a refusal that carries its wire code. Two Errors are the same to
// errors.Is when their codes are, on both sides of a network.
type Error struct {
	Code   Code
	Detail string // for people; never a secret or a payload
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return string(e.Code)
	}
	return string(e.Code) + ": " + e.Detail
}

// Is reports whether target is an Error with the same code.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}
