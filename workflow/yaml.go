package workflow

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxNesting bounds the recursion of the reader. The language itself needs eight levels.
const maxNesting = 100

type kind uint8

const (
	scalar kind = iota // text
	mapping
	list
	broken // something was reported here already
)

// node is one value of the file.
type node struct {
	kind  kind
	plain bool // a scalar without quotes: null, numbers and the like are told from it
	at    int  // offset in the source
	text  string
	// entries of a mapping, in file order, each key once.
	entries []entry
	items   []*node // of a list
}

// entry is one key of a mapping with its value.
type entry struct {
	key   string
	at    int
	value *node
}

// null tells whether the file gives no value here.
func (n *node) null() bool {
	if n.kind != scalar || !n.plain {
		return false
	}
	switch n.text {
	case "", "~", "null", "Null", "NULL":
		return true
	}
	return false
}

// place is what stands before a value; it decides what may follow on the same line.
type place uint8

const (
	atTop     place = iota
	afterKey        // "key:"
	afterDash       // "-"
)

// reader reads one document. Its cost is linear in the source whatever that holds.
type reader struct {
	src    string
	pos    int
	line   int // offset at which the current line starts
	depth  int
	found  *findings
	failed bool   // the rest cannot be understood
	buf    []byte // scratch
	slab   []node // nodes are taken from it: a value is small and there are many
}

// read returns the document's one value, or nil where it cannot be read.
func read(src string, found *findings) *node {
	r := &reader{src: src, found: found}
	if _, ok := r.content(); !ok && !r.failed && r.marker("---") {
		r.pos += 3
		if !r.restIsEmpty() {
			r.fail(r.pos, "after '---' the line must be empty")
		}
	}
	if r.failed {
		return nil
	}
	if r.pos == r.line && r.pos < len(src) && src[r.pos] == '%' {
		r.fail(r.pos, "YAML directives are not supported")
		return nil
	}
	n := r.value(-1, atTop)
	if r.failed {
		return nil
	}
	r.end()
	if r.failed {
		return nil
	}
	return n
}

// end checks that nothing follows the document.
func (r *reader) end() {
	if _, more := r.content(); more {
		r.fail(r.pos, "this does not belong to what stands before it: check its indentation")
	}
	if !r.failed && r.marker("...") {
		r.pos += 3
		if _, more := r.content(); more {
			r.fail(r.pos, "nothing may follow the end of the document")
		}
	}
	if !r.failed && r.pos < len(r.src) {
		r.fail(r.pos, "a file holds one workflow: a second document begins here")
	}
}

func (r *reader) fail(at int, format string, args ...any) {
	if !r.failed {
		r.failed = true
		r.found.add(at, format, args...)
	}
}

func (r *reader) node(k kind, at int) *node {
	if len(r.slab) == 0 {
		r.slab = make([]node, 32)
	}
	n := &r.slab[0]
	r.slab = r.slab[1:]
	n.kind, n.at = k, at
	return n
}

func (r *reader) enter(at int) bool {
	r.depth++
	if r.depth > maxNesting {
		r.fail(at, "nested deeper than %d levels", maxNesting)
		return false
	}
	return true
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// space tells whether a blank, a line end or the end of the file is at i.
func (r *reader) space(i int) bool {
	return i >= len(r.src) || blank(r.src[i]) || r.src[i] == '\n'
}

func (r *reader) blanks() {
	for r.pos < len(r.src) && blank(r.src[r.pos]) {
		r.pos++
	}
}

// newline goes to the next line from a line end, or to the end of the file.
func (r *reader) newline() {
	if r.pos < len(r.src) {
		r.pos++
	}
	r.line = r.pos
}

func (r *reader) lineEnd(from int) int {
	if i := strings.IndexByte(r.src[from:], '\n'); i >= 0 {
		return from + i
	}
	return len(r.src)
}

// comment tells whether a comment begins here: '#' only counts after a blank or at the start of a line.
func (r *reader) comment() bool {
	return r.pos < len(r.src) && r.src[r.pos] == '#' && (r.pos == r.line || blank(r.src[r.pos-1]))
}

// restIsEmpty skips blanks and a comment, and tells whether that was all of the line.
func (r *reader) restIsEmpty() bool {
	r.blanks()
	if r.comment() {
		r.pos = r.lineEnd(r.pos)
	}
	return r.pos >= len(r.src) || r.src[r.pos] == '\n'
}

// marker tells whether the line that begins here is one of "---" and "...".
func (r *reader) marker(m string) bool {
	return r.pos == r.line && strings.HasPrefix(r.src[r.pos:], m) && r.space(r.pos+3)
}

func (r *reader) anyMarker() bool { return r.marker("---") || r.marker("...") }

// dash tells whether a list item begins here.
func (r *reader) dash() bool {
	return r.pos < len(r.src) && r.src[r.pos] == '-' && r.space(r.pos+1)
}

// content skips empty lines and comments and returns the column, from 0, of what follows. It is false at the end of
// the document, and after a failure. Called again it stays where it is.
func (r *reader) content() (column int, ok bool) {
	for !r.failed {
		if !r.restIsEmpty() {
			if r.anyMarker() {
				return 0, false
			}
			return r.pos - r.line, r.noTab()
		}
		if r.pos >= len(r.src) {
			return 0, false
		}
		r.newline()
	}
	return 0, false
}

// noTab fails where a tab indents what is here: how deep a tab is, nobody knows.
func (r *reader) noTab() bool {
	for i := r.line; i < r.pos && blank(r.src[i]); i++ {
		if r.src[i] == '\t' {
			r.fail(i, "a tab cannot indent a line: use spaces")
			return false
		}
	}
	return true
}

// checkBytes refuses what is no text, and returns the source without a byte order mark and with its line ends unified.
func checkBytes(src string, found *findings) (string, bool) {
	src = strings.TrimPrefix(src, "\ufeff")
	returns := false
	for i := 0; i < len(src); {
		c := src[i]
		if c >= ' ' && c < 0x7f || c == '\n' || c == '\t' {
			i++
			continue
		}
		if c == '\r' {
			if i+1 >= len(src) || src[i+1] != '\n' {
				found.add(i, "a carriage return that no line feed follows")
				return src, false
			}
			returns = true
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(src[i:])
		if r == utf8.RuneError && size == 1 {
			found.add(i, "the file is not UTF-8 text: the byte 0x%02x", c)
			return src, false
		}
		if unicode.IsControl(r) && r != '\u0085' {
			found.add(i, `the control character %U: write it as "\x%02x", in double quotes`, r, r)
			return src, false
		}
		i += size
	}
	if returns {
		return strings.ReplaceAll(src, "\r\n", "\n"), true
	}
	return src, true
}
