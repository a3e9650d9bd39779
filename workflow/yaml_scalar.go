package workflow

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// plainStart tells whether text without quotes may begin here.
func (r *reader) plainStart(inFlow bool) bool {
	switch c := r.src[r.pos]; c {
	case ',', '[', ']', '{', '}', '#', '&', '*', '!', '|', '>', '\'', '"', '%', '@', '`':
		return false
	case '-', '?', ':':
		return !r.space(r.pos+1) && !(inFlow && flowMark(r.src[r.pos+1]))
	}
	return true
}

// plainText reads text without quotes, with the lines that continue it.
func (r *reader) plainText(parent int) *node {
	n, first := r.node(scalar, r.pos), r.line
	n.plain = true
	if !r.plainStart(false) {
		r.fail(r.pos, "a value cannot begin with '%c': put it in quotes", r.src[r.pos])
		return nil
	}
	end, more := r.plainLine()
	n.text = r.src[n.at:end]
	r.buf = r.buf[:0]
	for more {
		r.newline()
		breaks := 0
		for r.blanks(); r.pos < len(r.src) && r.src[r.pos] == '\n'; r.blanks() {
			r.newline()
			breaks++
		}
		if r.pos >= len(r.src) || r.pos-r.line <= parent || r.anyMarker() || r.comment() {
			break
		}
		if !r.noTab() {
			return nil
		}
		if len(r.buf) == 0 {
			r.buf = append(r.buf, n.text...)
		}
		r.buf = fold(r.buf, breaks)
		at := r.pos
		end, more = r.plainLine()
		if key, ok := cutKey(r.src[at:end]); ok {
			if i := strings.IndexAny(n.text, ": "); i > 0 && n.text[i] == ':' && at-r.line == n.at-first {
				r.fail(n.at+i, "a key needs a space after its ':'")
				return nil
			}
			r.fail(at, "%s stands inside the text that begins in line %d: check its indentation, or put the text in quotes",
				quote(key+":"), lineOf(r.src, n.at))
			return nil
		}
		r.buf = append(r.buf, r.src[at:end]...)
	}
	if len(r.buf) > 0 {
		n.text = string(r.buf)
	}
	return n
}

// cutKey cuts a line of text at a colon that would make it a key and a value.
func cutKey(line string) (key string, ok bool) {
	for i := 0; i < len(line); i++ {
		if line[i] == ':' && (i+1 == len(line) || blank(line[i+1])) {
			return line[:i], true
		}
	}
	return line, false
}

// plainLine goes over one line of plain text and returns where the text on it ends, and whether it may go on: a
// comment ends it.
func (r *reader) plainLine() (end int, more bool) {
	at := r.pos
	for r.pos < len(r.src) && r.src[r.pos] != '\n' {
		if r.src[r.pos] == '#' && blank(r.src[r.pos-1]) {
			break
		}
		r.pos++
	}
	end = at + len(strings.TrimRight(r.src[at:r.pos], " \t"))
	more = r.pos < len(r.src) && r.src[r.pos] == '\n'
	if !more {
		r.pos = r.lineEnd(r.pos)
	}
	return end, more
}

// fold joins two lines of text that n empty lines separate.
func fold(b []byte, n int) []byte {
	if n == 0 {
		return append(b, ' ')
	}
	for range n {
		b = append(b, '\n')
	}
	return b
}

// quoted reads text in quotes. With oneLine it only tries, for a key: it reports nothing and leaves the position
// anywhere.
func (r *reader) quoted(parent int, oneLine bool) (string, bool) {
	open, mark := r.pos, r.src[r.pos]
	special := "\"\\\n"
	if mark == '\'' {
		special = "'\n"
	}
	r.pos++
	var b []byte
	kept := 0 // what trimming at a line end must leave: blanks that an escape wrote
	for {
		i := strings.IndexAny(r.src[r.pos:], special)
		if i < 0 {
			return r.unclosed(open, oneLine)
		}
		part := r.src[r.pos : r.pos+i]
		r.pos += i
		switch c := r.src[r.pos]; {
		case c == mark && mark == '\'' && r.pos+1 < len(r.src) && r.src[r.pos+1] == '\'':
			b = append(append(b, part...), '\'')
			r.pos += 2
		case c == mark:
			r.pos++
			if b == nil {
				return part, true
			}
			return string(append(b, part...)), true
		case c == '\\':
			b = append(b, part...)
			var ok bool
			if b, ok = r.escape(b, parent, open, oneLine); !ok {
				return "", false
			}
			kept = len(b)
		default: // a line end
			if oneLine {
				return "", false
			}
			b = append(b, part...)
			b = b[:kept+len(strings.TrimRight(string(b[kept:]), " \t"))]
			breaks, ok := r.quotedLine(parent, open)
			if !ok {
				return "", false
			}
			b = fold(b, breaks)
			kept = len(b)
		}
	}
}

// quotedLine goes from a line end inside quotes to the next text, over empty lines, which it counts.
func (r *reader) quotedLine(parent, open int) (breaks int, ok bool) {
	r.newline()
	for {
		if r.anyMarker() {
			_, ok = r.unclosed(open, false)
			return 0, ok
		}
		r.blanks()
		if r.pos >= len(r.src) {
			_, ok = r.unclosed(open, false)
			return 0, ok
		}
		if r.src[r.pos] != '\n' {
			break
		}
		r.newline()
		breaks++
	}
	if r.pos-r.line <= parent {
		r.fail(open, "this quote is not closed before line %d", lineOf(r.src, r.pos))
		return 0, false
	}
	return breaks, true
}

func (r *reader) unclosed(open int, oneLine bool) (string, bool) {
	if !oneLine {
		r.fail(open, "this quote is not closed")
	}
	return "", false
}

// escape reads what a backslash in double quotes stands for.
func (r *reader) escape(b []byte, parent, open int, oneLine bool) ([]byte, bool) {
	at := r.pos
	r.pos++
	if r.pos >= len(r.src) {
		_, ok := r.unclosed(open, oneLine)
		return b, ok
	}
	c := r.src[r.pos]
	r.pos++
	switch c {
	case '\n': // the line goes on without a space
		if oneLine {
			return b, false
		}
		r.pos--
		breaks, ok := r.quotedLine(parent, open)
		for range breaks {
			b = append(b, '\n')
		}
		return b, ok
	case 'x':
		return r.hex(b, at, 2, oneLine)
	case 'u':
		return r.hex(b, at, 4, oneLine)
	case 'U':
		return r.hex(b, at, 8, oneLine)
	}
	if s, ok := escaped(c); ok {
		return append(b, s...), true
	}
	if !oneLine {
		r.fail(at, "unknown escape in double quotes: write '\\\\' for a backslash, or use single quotes")
	}
	return b, false
}

func escaped(c byte) (string, bool) {
	switch c {
	case '"', '\\', '/', ' ', '\t':
		return string(rune(c)), true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case 'r':
		return "\r", true
	case '0':
		return "\x00", true
	case 'a':
		return "\a", true
	case 'b':
		return "\b", true
	case 'v':
		return "\v", true
	case 'f':
		return "\f", true
	case 'e':
		return "\x1b", true
	case 'N':
		return "\u0085", true
	case '_':
		return "\u00a0", true
	case 'L':
		return "\u2028", true
	case 'P':
		return "\u2029", true
	}
	return "", false
}

// hex reads the digits of an escape; two escapes of JSON may make up one character.
func (r *reader) hex(b []byte, at, digits int, oneLine bool) ([]byte, bool) {
	c, ok := r.digits(digits)
	if ok && utf16.IsSurrogate(c) {
		if ok = strings.HasPrefix(r.src[r.pos:], `\u`); ok {
			r.pos += 2
			var low rune
			low, ok = r.digits(4)
			c = utf16.DecodeRune(c, low)
			ok = ok && c != utf8.RuneError
		}
	}
	if !ok || !utf8.ValidRune(c) {
		if !oneLine {
			r.fail(at, "this escape is not a character")
		}
		return b, false
	}
	return utf8.AppendRune(b, c), true
}

func (r *reader) digits(n int) (rune, bool) {
	if r.pos+n > len(r.src) {
		return 0, false
	}
	c, err := strconv.ParseUint(r.src[r.pos:r.pos+n], 16, 32)
	r.pos += n
	return rune(c), err == nil && c <= utf8.MaxRune
}
