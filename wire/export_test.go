package wire

// Scan takes data apart as ParseClient does. It returns the rule that is broken,
// or the known members: strings decoded, other values as they were written.
func Scan(data []byte) (broken string, known map[string]string) {
	var o object
	if f := o.scan(data, MaxDepth); f != faultNone {
		return f.String(), nil
	}
	known = make(map[string]string)
	for m := range members {
		if !o.has(m) {
			continue
		}
		if text, ok := o.text(m); ok {
			known[memberNames[m]] = string(text)
		} else {
			known[memberNames[m]] = string(o.raw(m))
		}
	}
	return "", known
}

func (f fault) String() string {
	name, ok := map[fault]string{
		faultSize:      "size",
		faultNotObject: "not an object",
		faultSyntax:    "syntax",
		faultTrailing:  "trailing",
		faultUTF8:      "utf8",
		faultSurrogate: "surrogate",
		faultDepth:     "depth",
		faultDuplicate: "duplicate",
	}[f]
	if !ok {
		return "shape"
	}
	return name
}

// UnnamedMembers returns the known members whose name does not lead back to them.
func UnnamedMembers() []string {
	var wrong []string
	for m := range members {
		if found, ok := memberOf([]byte(memberNames[m])); !ok || found != m {
			wrong = append(wrong, memberNames[m])
		}
	}
	return wrong
}

// Faults returns the detail of every fault but the first, which is none.
func Faults() []Error { return faultErrors[1:] }

// CutString is cutString.
func CutString(s string, n int) string { return cutString(s, n) }
