package workflow

import "strings"

// value reads the value that follows a key or a dash, or the document. Parent is the column of the collection that
// it belongs to: what continues on further lines must stand deeper.
func (r *reader) value(parent int, after place) *node {
	missing, line := r.pos, r.line
	for {
		column, ok := r.content()
		if r.failed {
			return nil
		}
		sameLine := r.line == line && after != atTop
		if !ok || (!sameLine && column <= parent && !(column == parent && after == afterKey && r.dash())) {
			n := r.node(scalar, missing)
			n.plain = true
			return n
		}
		if r.property() {
			continue
		}
		return r.present(parent, column, sameLine && after == afterKey)
	}
}

// present reads a value that is there. Inline means that it stands on the line of its key.
func (r *reader) present(parent, column int, inline bool) *node {
	at := r.pos
	switch c := r.src[r.pos]; {
	case r.dash():
		if inline {
			r.fail(at, "a list cannot begin on the line of its key: put each '-' on a line of its own")
			return nil
		}
		return r.list(column)
	case c == '?' && r.space(r.pos+1):
		r.fail(at, "'? ' keys are not supported")
		return nil
	case c == '|' || c == '>':
		return r.block(parent)
	case c == '*':
		r.found.add(at, "aliases are not supported: repeat the value")
		r.word()
		return r.alone(r.node(broken, at), "an alias")
	case c == '[' || c == '{':
		n := r.flow(parent)
		if r.failed {
			return nil
		}
		return r.alone(n, "the closing bracket")
	}
	if e, ok := r.key(); ok {
		if inline {
			r.fail(at, "a second ': ' on one line: put the value in quotes, or its keys on lines of their own")
			return nil
		}
		return r.mapping(column, e)
	}
	if c := r.src[r.pos]; c == '"' || c == '\'' {
		text, ok := r.quoted(parent, false)
		if !ok {
			return nil
		}
		n := r.node(scalar, at)
		n.text = text
		return r.alone(n, "the closing quote")
	}
	return r.plainText(parent)
}

// alone checks that the line ends after a value whose end is marked.
func (r *reader) alone(n *node, what string) *node {
	at := r.pos
	if r.restIsEmpty() {
		return n
	}
	switch {
	case r.src[r.pos] == ':' && n.kind != scalar:
		r.fail(n.at, "a list or a map cannot be a key")
	case r.src[r.pos] == '#':
		r.fail(at, "a comment needs a space before its '#'")
	default:
		r.fail(r.pos, "text after %s: put the whole value in quotes", what)
	}
	return nil
}

// property reports and skips an anchor or a tag.
func (r *reader) property() bool {
	switch r.src[r.pos] {
	case '&':
		r.found.add(r.pos, "anchors are not supported")
	case '!':
		r.found.add(r.pos, "tags are not supported")
	default:
		return false
	}
	r.word()
	return true
}

// word skips to the next blank, line end, comma or bracket.
func (r *reader) word() {
	for !r.space(r.pos) && !flowMark(r.src[r.pos]) {
		r.pos++
	}
}

// list reads the items whose dashes stand in one column.
func (r *reader) list(column int) *node {
	n := r.node(list, r.pos)
	if !r.enter(r.pos) || !r.noTabBefore() {
		return nil
	}
	for {
		r.pos++ // the dash
		item := r.value(column, afterDash)
		if r.failed {
			return nil
		}
		n.items = append(n.items, item)
		next, more := r.content()
		if r.failed {
			return nil
		}
		if more && next > column {
			r.fail(r.pos, "this stands deeper than the list item before it, which is complete: check its indentation")
			return nil
		}
		if !more || next < column || !r.dash() {
			break // a key in the column of the dashes goes on with the map around the list
		}
	}
	r.depth--
	return n
}

// mapping reads the keys that stand in one column, the first of which is read already.
func (r *reader) mapping(column int, first entry) *node {
	n := r.node(mapping, first.at)
	if !r.enter(first.at) || !r.noTabBefore() {
		return nil
	}
	var keys keySet
	for e := first; ; {
		e.value = r.value(column, afterKey)
		if r.failed {
			return nil
		}
		r.put(n, &keys, e)
		next, more := r.content()
		if r.failed {
			return nil
		}
		if !more || next < column {
			break
		}
		if next > column {
			r.fail(r.pos, "this stands deeper than the key before it, whose value is complete: check its indentation")
			return nil
		}
		var ok bool
		if e, ok = r.nextKey(); !ok {
			return nil
		}
	}
	r.depth--
	return n
}

// nextKey reads a key where there must be one.
func (r *reader) nextKey() (entry, bool) {
	at := r.pos
	if r.dash() {
		r.fail(at, "a list item where a key is expected: check its indentation")
		return entry{}, false
	}
	e, ok := r.key()
	if ok {
		return e, true
	}
	line := r.src[at:r.lineEnd(at)]
	switch c := line[0]; {
	case c == '?' && r.space(at+1):
		r.fail(at, "'? ' keys are not supported")
	case strings.IndexByte("&*!", c) >= 0:
		r.fail(at, "anchors, aliases and tags are not supported")
	case c == '[' || c == '{':
		r.fail(at, "a list or a map cannot be a key")
	case strings.Contains(line, ":"):
		r.fail(at, "a key is expected here, as in 'name: value', with a space after the ':'")
	default:
		r.fail(at, "a key is expected here, as in 'name: value'")
	}
	return entry{}, false
}

// key reads a key and its colon if they stand here, and else stays where it is.
func (r *reader) key() (entry, bool) {
	at := r.pos
	if c := r.src[at]; c == '"' || c == '\'' {
		text, ok := r.quoted(-1, true)
		if ok {
			r.blanks()
			if r.pos < len(r.src) && r.src[r.pos] == ':' && r.space(r.pos+1) {
				r.pos++
				return entry{key: text, at: at}, true
			}
		}
		r.pos = at
		return entry{}, false
	}
	if !r.plainStart(false) {
		return entry{}, false
	}
	for i := at; i < len(r.src); i++ {
		switch r.src[i] {
		case '\n':
			return entry{}, false
		case '#':
			if blank(r.src[i-1]) {
				return entry{}, false
			}
		case ':':
			if r.space(i + 1) {
				r.pos = i + 1
				return entry{key: strings.TrimRight(r.src[at:i], " \t"), at: at}, true
			}
		}
	}
	return entry{}, false
}

// noTabBefore fails where a tab stands between the dashes and the collection that begins on their line.
func (r *reader) noTabBefore() bool {
	for i := r.line; i < r.pos; i++ {
		switch r.src[i] {
		case '\t':
			r.fail(i, "a tab cannot indent: use spaces")
			return false
		case ' ', '-':
		default:
			return true
		}
	}
	return true
}

// keySet finds keys that are given twice: by looking through the few that a map mostly has, else by a table.
type keySet map[string]int

func (r *reader) put(n *node, keys *keySet, e entry) {
	const few = 16
	if e.key == "<<" {
		r.found.add(e.at, "merge keys are not supported")
		return
	}
	first := -1
	if *keys == nil {
		for i := range n.entries {
			if n.entries[i].key == e.key {
				first = n.entries[i].at
				break
			}
		}
	} else if at, ok := (*keys)[e.key]; ok {
		first = at
	}
	if first >= 0 {
		r.twice(e, first)
		return
	}
	n.entries = append(n.entries, e)
	if *keys != nil {
		(*keys)[e.key] = e.at
	} else if len(n.entries) > few {
		*keys = make(keySet, 4*few)
		for i := range n.entries {
			(*keys)[n.entries[i].key] = n.entries[i].at
		}
	}
}

func (r *reader) twice(e entry, first int) {
	if r.found.drop() {
		return
	}
	r.found.add(e.at, "the key %s is given twice, the first time in line %d", quote(e.key), lineOf(r.src, first))
}

func lineOf(src string, at int) int { return 1 + strings.Count(src[:at], "\n") }
