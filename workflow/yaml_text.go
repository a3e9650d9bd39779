package workflow

// block reads a '|' or '>' text, which is how scripts are written. Parent is the column of the collection around it.
func (r *reader) block(parent int) *node {
	n := r.node(scalar, r.pos)
	folded := r.src[r.pos] == '>'
	chomp, indent := r.blockHeader()
	if !r.restIsEmpty() {
		r.fail(r.pos, "after '|' and '>' only '-', '+', a digit and a comment may follow on the line")
		return nil
	}
	r.newline()
	if indent > 0 {
		indent += max(parent, 0)
	} else if indent = r.blockIndent(parent); r.failed {
		return nil
	}
	b := r.buf[:0]
	empty := 0         // empty lines since the last line
	ended := false     // a line was read, and its end
	wasDeeper := false // the line before begins with a blank: folding leaves it alone
	for {
		line, state := r.blockLine(indent)
		if state == textOver {
			break
		}
		if state == textEmpty {
			empty++
			continue
		}
		deeper := line != "" && blank(line[0])
		if ended {
			if !folded || wasDeeper || deeper {
				b = append(b, '\n')
			} else if empty == 0 {
				b = append(b, ' ')
			}
		}
		for ; empty > 0; empty-- {
			b = append(b, '\n')
		}
		b = append(b, line...)
		wasDeeper = deeper
		ended = r.pos < len(r.src)
		r.newline()
	}
	if chomp != '-' && ended {
		b = append(b, '\n')
	}
	if chomp == '+' {
		for range empty {
			b = append(b, '\n')
		}
	}
	r.buf, n.text = b, string(b)
	return n
}

// blockHeader reads what follows the '|': how the end is cut, and how deep the text stands.
func (r *reader) blockHeader() (chomp byte, indent int) {
	for r.pos++; r.pos < len(r.src); r.pos++ {
		switch c := r.src[r.pos]; {
		case (c == '-' || c == '+') && chomp == 0:
			chomp = c
		case c >= '1' && c <= '9' && indent == 0:
			indent = int(c - '0')
		default:
			return chomp, indent
		}
	}
	return chomp, indent
}

// blockIndent finds how deep the text stands from its first line that is not empty. Where there is none, it returns
// what such a line would need at least.
func (r *reader) blockIndent(parent int) int {
	widest, wide := 0, r.pos // of the empty lines
	for at := r.pos; at < len(r.src); {
		i := at
		for i < len(r.src) && r.src[i] == ' ' {
			i++
		}
		column := i - at
		for i < len(r.src) && blank(r.src[i]) {
			i++
		}
		if i < len(r.src) && r.src[i] != '\n' {
			if column <= parent {
				break
			}
			if widest > column {
				r.fail(wide, "this empty line has more spaces than the text below it: remove them")
			}
			return column
		}
		if column > widest {
			widest, wide = column, at
		}
		at = i + 1
	}
	return max(parent+1, widest)
}

type textLine uint8

const (
	textOver  textLine = iota // the text ends before this line
	textEmpty                 // skipped
	textMore                  // the position is at its end
)

// blockLine reads the line that begins here.
func (r *reader) blockLine(indent int) (string, textLine) {
	if r.pos >= len(r.src) || r.anyMarker() && indent == 0 {
		return "", textOver
	}
	i := r.pos
	for i < len(r.src) && i-r.pos < indent && r.src[i] == ' ' {
		i++
	}
	if i-r.pos == indent && i < len(r.src) && r.src[i] != '\n' {
		r.pos = r.lineEnd(i)
		return r.src[i:r.pos], textMore
	}
	first := i
	for i < len(r.src) && blank(r.src[i]) {
		i++
	}
	switch {
	case i >= len(r.src): // spaces at the end of the file
		r.pos = i
		return "", textOver
	case r.src[i] == '\n':
		r.pos = i
		r.newline()
		return "", textEmpty
	case r.src[first] == '\t':
		r.fail(first, "a tab cannot indent a line: use spaces")
	}
	return "", textOver
}
