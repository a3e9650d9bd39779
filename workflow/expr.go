package workflow

import (
	"strings"
)

// Bounds of expressions.
const (
	maxExpr     = 4096 // bytes of one expression
	exprOpen    = "${{"
	exprClose   = "}}"
	maxExprText = 1000 // expressions in one text
)

// Template is a text of the file that holds expressions. It is shared and never changed.
type Template struct {
	parts []part
}

// part is a piece of text, or an expression.
type part struct {
	text string
	code *code
	at   int // where the expression begins in the text
}

// single is the expression that is all of the template, or nil: such a value keeps its type.
func (t *Template) single() *code {
	if len(t.parts) == 1 {
		return t.parts[0].code
	}
	return nil
}

// String is the text as the file writes it.
func (t *Template) String() string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.code == nil {
			b.WriteString(p.text)
		} else {
			b.WriteString(exprOpen + p.code.text + exprClose)
		}
	}
	return b.String()
}

// MarshalText is String.
func (t *Template) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// hasExpr tells whether a text holds an expression.
func hasExpr(s string) bool { return strings.Contains(s, exprOpen) }

// pieces cuts a text into its parts; the codes hold no more than their text. Where it cannot be cut it returns where, and a
// sentence.
func pieces(s string) (parts []part, at int, wrong string) {
	for pos := 0; pos < len(s); {
		i := strings.Index(s[pos:], exprOpen)
		if i < 0 {
			parts = append(parts, part{text: s[pos:]})
			break
		}
		if i > 0 {
			parts = append(parts, part{text: s[pos : pos+i]})
		}
		start := pos + i + len(exprOpen)
		n := exprLength(s[start:])
		switch {
		case n < 0:
			return nil, pos + i, "this '${{' is not closed by '}}'"
		case strings.TrimSpace(s[start:start+n]) == "":
			return nil, pos + i, "this expression is empty"
		case n > maxExpr:
			return nil, pos + i, "this expression is longer than 4096 bytes"
		case len(parts) > maxExprText:
			return nil, pos + i, "a text holds at most 1000 expressions"
		}
		parts = append(parts, part{code: &code{text: s[start : start+n]}, at: start})
		pos = start + n + len(exprClose)
	}
	return parts, 0, ""
}

// exprLength finds the '}}' that ends an expression: not one in quotes, and not one of its maps.
func exprLength(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				if strings.HasPrefix(s[i:], exprClose) {
					return i
				}
				return -1
			}
			depth--
		case '\'', '"':
			n := quotedLength(s[i:], rawBefore(s, i))
			if n < 0 {
				return -1
			}
			i += n - 1
		}
	}
	return -1
}

// rawBefore tells whether a quote at i belongs to a raw text, as in r'\'.
func rawBefore(s string, i int) bool {
	for k := i - 1; k >= 0 && i-k <= 2; k-- {
		switch s[k] {
		case 'r', 'R':
			return k == 0 || !letterOrDigit(s[k-1]) && s[k-1] != '_' || s[k-1] == 'b' || s[k-1] == 'B'
		case 'b', 'B':
		default:
			return false
		}
	}
	return false
}

// quotedLength is the length of the quoted text at the beginning of s, or -1.
func quotedLength(s string, raw bool) int {
	mark := s[:1]
	if strings.HasPrefix(s, strings.Repeat(mark, 3)) {
		mark = strings.Repeat(mark, 3)
	}
	for i := len(mark); i < len(s); i++ {
		switch {
		case s[i] == '\\' && !raw:
			i++
		case strings.HasPrefix(s[i:], mark):
			return i + len(mark)
		case s[i] == '\n' && len(mark) == 1:
			return -1
		}
	}
	return -1
}

// locate finds in the source the place of an offset of a scalar's text. The text is what quotes, escapes and folded lines
// made of the source, so it goes along both from the expression that holds the offset, the nth one of the text.
func locate(src string, n *node, nth, start, offset int) int {
	pos := n.at
	for range nth + 1 {
		i := strings.Index(src[pos:], exprOpen)
		if i < 0 {
			return n.at // it is written with escapes
		}
		pos += i + len(exprOpen)
	}
	return along(src, n, pos, start, offset)
}

// locateRaw finds the place of an offset of a scalar's text from its beginning.
func locateRaw(src string, n *node, offset int) int {
	pos := n.at
	switch {
	case pos >= len(src) || n.plain:
	case src[pos] == '\'' || src[pos] == '"':
		pos++
	default: // the text begins in the next line
		if i := strings.IndexByte(src[pos:], '\n'); i >= 0 {
			pos = skipBlanks(src, pos+i+1)
		}
	}
	return along(src, n, pos, 0, offset)
}

// along goes from a place in the source, where the text has the offset start, to another offset.
func along(src string, n *node, pos, start, offset int) int {
	text := n.text
	for i := start; i < offset && i < len(text) && pos < len(src); {
		switch {
		case text[i] == src[pos]:
			if text[i] == '\'' && !n.plain && strings.HasPrefix(src[pos:], "''") && !strings.HasPrefix(text[i:], "''") {
				pos++ // two in the source are one
			}
			i++
			pos++
			if text[i-1] == '\n' {
				pos = skipBlanks(src, pos)
				i = skipBlanks(text, i)
			}
		case src[pos] == '\\': // an escape, or a line that goes on
			pos++
		case src[pos] == '\n' || blank(src[pos]):
			for pos < len(src) && (src[pos] == '\n' || blank(src[pos])) {
				pos++
			}
			for i < len(text) && (text[i] == '\n' || blank(text[i])) {
				i++
			}
		default:
			return pos
		}
	}
	return min(pos, len(src))
}

func skipBlanks(s string, i int) int {
	for i < len(s) && blank(s[i]) {
		i++
	}
	return i
}
