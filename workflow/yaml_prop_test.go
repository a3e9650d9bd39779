package workflow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// writer writes a tree as YAML, drawing at each turn one of the ways to write the same thing.
type writer struct {
	t *rapid.T
	b strings.Builder
}

func (w *writer) pick(what string, n int) int { return rapid.IntRange(0, n-1).Draw(w.t, what) }

func (w *writer) pad(n int) { w.b.WriteString(strings.Repeat(" ", n)) }

// drawTree draws a document: maps, lists and texts.
func drawTree(t *rapid.T, depth int) any {
	k := rapid.IntRange(0, 9).Draw(t, "kind")
	switch {
	case depth > 0 && k < 3:
		m := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "keys") {
			if key := drawText(t); key != "<<" {
				m[key] = drawTree(t, depth-1)
			}
		}
		return m
	case depth > 0 && k < 5:
		l := []any{}
		for range rapid.IntRange(0, 4).Draw(t, "items") {
			l = append(l, drawTree(t, depth-1))
		}
		return l
	}
	return drawText(t)
}

func drawText(t *rapid.T) string {
	pieces := []string{"a", "b", "word", "é", "🚀", " ", "  ", ":", ": ", "#", " #", "-", "- ", "'", `"`, `\`, "\n", "\n\n", "\t", "[", "]", "{", "}", ",", "|", ">", "1.10", "~", "---"}
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 6).Draw(t, "text"), "")
}

// document writes the whole.
func (w *writer) document(tree any) string {
	if w.pick("start", 3) == 0 {
		w.b.WriteString("# before\n---\n")
	}
	switch {
	case w.pick("flow", 4) == 0:
		w.flow(tree)
		w.end()
	default:
		w.block(tree, -1, 0)
	}
	if w.pick("end", 3) == 0 {
		w.b.WriteString("...\n# after\n")
	}
	return w.b.String()
}

// end ends a line, or starts a comment that ends it, and adds lines that mean nothing.
func (w *writer) end() {
	w.b.WriteString([]string{"\n", "  \n", " # comment: 'x\n", "\n\n", "\n# [\n"}[w.pick("line end", 5)])
}

// block writes a value from the start of a line on. What it writes stands deeper than parent.
func (w *writer) block(tree any, parent, column int) {
	switch v := tree.(type) {
	case map[string]any:
		if len(v) > 0 {
			w.mapping(v, column, column)
			return
		}
	case []any:
		if len(v) > 0 {
			w.list(v, column, column)
			return
		}
	}
	w.pad(column)
	w.leaf(tree, parent)
}

// mapping writes keys in one column; the first is indented by first, which is less where its line has begun.
func (w *writer) mapping(m map[string]any, first, column int) {
	indent := first
	for _, key := range sortedKeys(m) {
		w.pad(indent)
		indent = column
		w.scalar(key, false)
		w.b.WriteString([]string{":", " :", "  :"}[w.pick("colon", 3)])
		deeper := column + 1 + w.pick("depth", 4)
		switch v := m[key].(type) {
		case map[string]any:
			if len(v) > 0 && w.pick("flow", 4) > 0 {
				w.end()
				w.mapping(v, deeper, deeper)
				continue
			}
		case []any:
			if len(v) > 0 && w.pick("flow", 4) > 0 {
				w.end()
				at := []int{column, deeper}[w.pick("same column", 2)]
				w.list(v, at, at)
				continue
			}
		}
		if m[key] == "" && w.pick("nothing", 2) == 0 {
			w.end()
			continue
		}
		w.b.WriteString([]string{" ", "  ", "\n" + strings.Repeat(" ", deeper)}[w.pick("gap", 3)])
		w.leaf(m[key], column)
	}
}

func (w *writer) list(l []any, first, column int) {
	indent := first
	for _, item := range l {
		w.pad(indent)
		indent = column
		w.b.WriteString("-")
		gap := 1 + w.pick("gap", 3)
		inner := column + 1 + gap
		switch v := item.(type) {
		case map[string]any:
			if len(v) > 0 {
				if w.pick("compact", 2) == 0 {
					w.mapping(v, gap, inner)
				} else {
					w.end()
					w.mapping(v, inner, inner)
				}
				continue
			}
		case []any:
			if len(v) > 0 {
				if w.pick("compact", 2) == 0 {
					w.list(v, gap, inner)
				} else {
					w.end()
					w.list(v, inner, inner)
				}
				continue
			}
		}
		if item == "" && w.pick("nothing", 2) == 0 {
			w.end()
			continue
		}
		w.pad(gap)
		w.leaf(item, column)
	}
}

// leaf writes what is no block collection, and ends the line. Parent is the column of the collection around it.
func (w *writer) leaf(tree any, parent int) {
	text, ok := tree.(string)
	if ok && text != "" && w.pick("block text", 3) == 0 {
		w.literal(text, parent)
		return
	}
	w.flow(tree)
	w.end()
}

// literal writes a '|' text whose indentation is given where it could not be found.
func (w *writer) literal(text string, parent int) {
	depth := 1 + w.pick("depth", 9)
	w.b.WriteString("|")
	if strings.IndexAny(text, " \t\n") == 0 || w.pick("explicit", 3) == 0 {
		fmt.Fprint(&w.b, depth)
	}
	body := strings.TrimSuffix(text, "\n")
	switch {
	case body == text:
		w.b.WriteString("-")
	case body == "" || strings.HasSuffix(body, "\n"):
		w.b.WriteString("+")
	}
	w.b.WriteString([]string{"", " ", " # comment"}[w.pick("header", 3)] + "\n")
	for _, line := range strings.Split(body, "\n") {
		if line != "" {
			w.pad(max(parent, 0) + depth)
		}
		w.b.WriteString(line + "\n")
	}
}

// flow writes a value within one line, or with brackets over several.
func (w *writer) flow(tree any) {
	gap := func() {
		w.b.WriteString([]string{"", " ", "  "}[w.pick("gap", 3)])
	}
	switch v := tree.(type) {
	case map[string]any:
		w.b.WriteString("{")
		for i, key := range sortedKeys(v) {
			if i > 0 {
				w.b.WriteString(",")
			}
			gap()
			w.scalar(key, true)
			gap()
			w.b.WriteString(": ")
			w.flow(v[key])
		}
		w.b.WriteString("}")
	case []any:
		w.b.WriteString("[")
		for i, item := range v {
			if i > 0 {
				w.b.WriteString(",")
			}
			gap()
			w.flow(item)
			gap()
		}
		w.b.WriteString("]")
	case string:
		w.scalar(v, true)
	}
}

// scalar writes a text within one line.
func (w *writer) scalar(s string, inFlow bool) {
	style := w.pick("style", 3)
	safe := s != "" && strings.Trim(s, "abwordé🚀1.0") == "" || s == "a:b" || s == "a b" || (!inFlow && s == "a,[b")
	switch {
	case style == 0 && safe:
		w.b.WriteString(s)
	case style == 1 && !strings.Contains(s, "\n"):
		w.b.WriteString("'" + strings.ReplaceAll(s, "'", "''") + "'")
	default:
		w.b.WriteString(`"`)
		for _, r := range s {
			switch {
			case r == '"' || r == '\\':
				w.b.WriteString(`\` + string(r))
			case r == '\n':
				w.b.WriteString(`\n`)
			case r > 0xffff && w.pick("escape", 2) == 0:
				fmt.Fprintf(&w.b, `\U%08x`, r)
			case r > 0x7f && r <= 0xffff && w.pick("escape", 2) == 0:
				fmt.Fprintf(&w.b, `\u%04x`, r)
			default:
				w.b.WriteRune(r)
			}
		}
		w.b.WriteString(`"`)
	}
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

func TestRead_GivesBackWhatWasWrittenInWhateverStyle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawTree(t, 4)
		w := &writer{t: t}
		src := w.document(want)
		got, wrong := readTree(src)
		if wrong != "" {
			t.Fatalf("%s in\n%s", wrong, src)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s\nof\n%s", diff, src)
		}
	})
}
