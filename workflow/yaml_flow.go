package workflow

import "strings"

// flowMark tells the characters that mean something anywhere between brackets.
func flowMark(c byte) bool { return c == ',' || c == '[' || c == ']' || c == '{' || c == '}' }

// flow reads a list or a map in brackets, JSON included.
func (r *reader) flow(parent int) *node {
	open := r.pos
	if !r.enter(open) {
		return nil
	}
	var keys keySet
	n, end := r.node(list, open), byte(']')
	if r.src[open] == '{' {
		n.kind, end = mapping, '}'
	}
	r.pos++
	for {
		if !r.flowSpace(parent, open) {
			return nil
		}
		if r.src[r.pos] == end {
			break
		}
		if n.kind == mapping {
			r.flowEntry(n, &keys, parent, open)
		} else {
			n.items = append(n.items, r.flowValue(parent, open))
		}
		if r.failed || !r.flowSpace(parent, open) {
			return nil
		}
		if r.src[r.pos] == end {
			break
		}
		if r.src[r.pos] != ',' {
			r.fail(r.pos, "a ',' or the '%c' of the '%c' in line %d is expected here", end, r.src[open], lineOf(r.src, open))
			return nil
		}
		r.pos++
	}
	r.pos++
	r.depth--
	return n
}

// flowSpace goes to the next thing between brackets, over lines and comments. It fails where the brackets cannot go
// on: at the end of the document, and at a line that does not stand deeper than the collection around the brackets.
func (r *reader) flowSpace(parent, open int) bool {
	first := false
	for r.restIsEmpty() {
		if r.pos >= len(r.src) {
			r.fail(open, "this '%c' is not closed", r.src[open])
			return false
		}
		r.newline()
		first = true
	}
	c := r.src[r.pos]
	if first && (r.anyMarker() || (r.pos-r.line <= parent && c != ']' && c != '}')) {
		r.fail(open, "this '%c' is not closed before line %d", r.src[open], lineOf(r.src, r.pos))
		return false
	}
	return true
}

// flowEntry reads one "key: value" between braces.
func (r *reader) flowEntry(n *node, keys *keySet, parent, open int) {
	e := entry{at: r.pos}
	c := r.src[r.pos]
	quoted := c == '"' || c == '\''
	switch {
	case c == '&' || c == '*' || c == '!':
		r.fail(r.pos, "anchors, aliases and tags are not supported")
		return
	case c == '[' || c == '{':
		r.fail(r.pos, "a list or a map cannot be a key")
		return
	case quoted:
		e.key, _ = r.quoted(parent, false)
	default:
		e.key = r.flowPlain()
	}
	if r.failed || !r.flowSpace(parent, open) {
		return
	}
	if r.src[r.pos] != ':' || !quoted && !r.space(r.pos+1) && !flowMark(r.src[r.pos+1]) {
		hint := ""
		if !quoted && strings.Contains(e.key, ":") {
			hint = ": put a space after its ':'"
		}
		r.fail(e.at, "the key %s has no value%s", quote(e.key), hint)
		return
	}
	r.pos++
	colon := r.pos
	if !r.flowSpace(parent, open) {
		return
	}
	if c := r.src[r.pos]; c == ',' || c == '}' {
		e.value = r.node(scalar, colon)
		e.value.plain = true
	} else {
		e.value = r.flowValue(parent, open)
	}
	if !r.failed {
		r.put(n, keys, e)
	}
}

// flowValue reads one value between brackets.
func (r *reader) flowValue(parent, open int) *node {
	for r.property() {
		if !r.flowSpace(parent, open) {
			return nil
		}
	}
	at := r.pos
	switch c := r.src[at]; c {
	case '[', '{':
		return r.flow(parent)
	case '*':
		r.found.add(at, "aliases are not supported: repeat the value")
		r.word()
		return r.node(broken, at)
	case '"', '\'':
		n := r.node(scalar, at)
		n.text, _ = r.quoted(parent, false)
		return n
	case ',', ']', '}':
		r.fail(at, "a value is expected before this '%c'", c)
		return nil
	}
	n := r.node(scalar, at)
	n.plain, n.text = true, r.flowPlain()
	if !r.failed && r.pos < len(r.src) && r.src[r.pos] == ':' {
		r.fail(r.pos, "a ': ' inside a value: put the value in quotes, or write {key: value}")
	}
	return n
}

// flowPlain reads text without quotes between brackets. It ends with its line: what goes on in the next one is far
// more often a forgotten comma than a long text.
func (r *reader) flowPlain() string {
	if !r.plainStart(true) {
		r.fail(r.pos, "a value cannot begin with '%c': put it in quotes", r.src[r.pos])
		return ""
	}
	at := r.pos
scan:
	for ; r.pos < len(r.src); r.pos++ {
		switch c := r.src[r.pos]; {
		case c == '\n' || flowMark(c):
			break scan
		case c == '#' && blank(r.src[r.pos-1]):
			break scan
		case c == ':' && (r.space(r.pos+1) || flowMark(r.src[r.pos+1])):
			break scan
		}
	}
	return strings.TrimRight(r.src[at:r.pos], " \t")
}
