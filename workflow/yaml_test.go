package workflow

import (
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/google/go-cmp/cmp"
)

// tree is a document for comparison: map[string]any, []any or string; keys are unordered, all scalars are texts.
func tree(n *node) any {
	switch n.kind {
	case mapping:
		m := map[string]any{}
		for _, e := range n.entries {
			m[e.key] = tree(e.value)
		}
		return m
	case list:
		l := []any{}
		for _, item := range n.items {
			l = append(l, tree(item))
		}
		return l
	default:
		return n.text
	}
}

// readTree reads a document, or returns the first thing that is wrong with it.
func readTree(src string) (any, string) {
	var found findings
	src, ok := checkBytes(src, &found)
	if ok {
		if n := read(src, &found); n != nil && len(found.list) == 0 {
			return tree(n), ""
		}
	}
	return nil, found.diagnoses("f", src)[0].String()
}

type (
	m = map[string]any
	l = []any
)

// documents are read to these trees. The other parser agrees, except where noted.
func documents() []struct {
	name, src string
	want      any
	alone     string // why the other parser reads something else
} {
	return []struct {
		name, src string
		want      any
		alone     string
	}{
		{name: "a plain text", src: "a", want: "a"},
		{name: "a map", src: "a: b\nc: d\n", want: m{"a": "b", "c": "d"}},
		{name: "a map in a map", src: "a:\n  b: c\n  d:\n    e: f\ng: h\n", want: m{"a": m{"b": "c", "d": m{"e": "f"}}, "g": "h"}},
		{name: "indentation of every depth", src: "a:\n b:\n        c: d\n e: f\n", want: m{"a": m{"b": m{"c": "d"}, "e": "f"}}},
		{name: "a whole document that is indented", src: "  a: b\n  c: d\n", want: m{"a": "b", "c": "d"}},
		{name: "a list", src: "- a\n- b\n", want: l{"a", "b"}},
		{name: "a list in the column of its key", src: "a:\n- b\n- c\nd: e\n", want: m{"a": l{"b", "c"}, "d": "e"}},
		{name: "a list below its key", src: "a:\n    - b\n    - c\nd: e\n", want: m{"a": l{"b", "c"}, "d": "e"}},
		{name: "maps in a list", src: "- a: b\n  c: d\n-   e: f\n    g: h\n-\n  i: j\n", want: l{m{"a": "b", "c": "d"}, m{"e": "f", "g": "h"}, m{"i": "j"}}},
		{name: "lists in a list", src: "- - a\n  - b\n-\n  - c\n- - - d\n", want: l{l{"a", "b"}, l{"c"}, l{l{"d"}}}},
		{name: "a list in a map in a list", src: "- a:\n  - b\n  c: d\n- e\n", want: l{m{"a": l{"b"}, "c": "d"}, "e"}},
		{name: "no values", src: "a:\nb:\n  c:\nd:", want: m{"a": "", "b": m{"c": ""}, "d": ""}},
		{name: "empty items", src: "-\n- a\n-\n", want: l{"", "a", ""}},
		{name: "an empty value before a list that ends", src: "- a:\n- b:\n", want: l{m{"a": ""}, m{"b": ""}}},

		{name: "comments everywhere", src: "# a\na: b # c\n# d\n  # e\nf: # g\n  # h\n  i: j\n#k", want: m{"a": "b", "f": m{"i": "j"}}},
		{name: "a number sign that begins no comment", src: "a: b#c\nd: 'e'\nf#g: h\n", want: m{"a": "b#c", "d": "e", "f#g": "h"}},
		{name: "empty lines everywhere", src: "\n\na:\n\n  b: c\n\n\n  d: e\n\n", want: m{"a": m{"b": "c", "d": "e"}}},
		{name: "blanks at line ends", src: "a:  \n  b: c  \n  d:   e   \n", want: m{"a": m{"b": "c", "d": "e"}}},
		{name: "blanks around a colon", src: "a : b\n'c' : d\n\"e\"  :  f\n", want: m{"a": "b", "c": "d", "e": "f"}},

		{name: "colons in plain texts", src: "a: b:c\nd:e: f\ng: http://h:1/i\nj: ::k\n", want: m{"a": "b:c", "d:e": "f", "g": "http://h:1/i", "j": "::k"}},
		{name: "indicators in plain texts", src: "a: -b\nc: ?d\ne: f - g ? h\ni: j!k&l*m|n>o%p@q`r\ns: t, u] v}\n", want: m{"a": "-b", "c": "?d", "e": "f - g ? h", "i": "j!k&l*m|n>o%p@q`r", "s": "t, u] v}"}},
		{name: "quotes inside plain texts", src: "a: b'c\"d\ne: f 'g' \"h\"\n", want: m{"a": "b'c\"d", "e": "f 'g' \"h\""}},
		{name: "plain texts over lines", src: "a: b\n  c\n   d\ne:\n  f\n\n  g\n\n\n  h\n", want: m{"a": "b c d", "e": "f\ng\n\nh"}},
		{name: "a plain text that looks like a list", src: "a: b\n  - c\n  - d\n", want: m{"a": "b - c - d"}},
		{name: "a comment ends a plain text", src: "a: b # c\nd: e\n", want: m{"a": "b", "d": "e"}},
		{name: "a plain text in a list over lines", src: "- a\n  b\n- c\n", want: l{"a b", "c"}},
		{name: "scalars as they are written", src: "- 1.10\n- 0x1F\n- 1_000\n- TRUE\n- ~\n- null\n- .inf\n- 2024-01-01\n", want: l{"1.10", "0x1F", "1_000", "TRUE", "~", "null", ".inf", "2024-01-01"}},

		{name: "single quotes", src: "a: 'b ''c'' \"d\" \\n # e: f'\n", want: m{"a": `b 'c' "d" \n # e: f`}},
		{name: "single quotes over lines", src: "a: 'b\n  c\n\n  d '\n", want: m{"a": "b c\nd "}},
		{name: "empty quotes", src: "a: ''\nb: \"\"\n", want: m{"a": "", "b": ""}},
		{name: "double quotes", src: `a: "b \"c\" 'd' \\ # e: f"`, want: m{"a": `b "c" 'd' \ # e: f`}},
		{name: "escapes", src: `"\0\a\b\t\n\v\f\r\e\"\/\\\N\_\L\P\x41\u00e9\U0001F680"`, want: "\x00\a\b\t\n\v\f\r\x1b\"/\\\u0085\u00a0\u2028\u2029Aé🚀"},
		{name: "the character of two escapes", src: `"\ud83d\ude80"`, want: "🚀"},
		{name: "double quotes over lines", src: "a: \"b  \n  c\n\n\n  d \\\n  e\\\n   \\ f\\t\n  g\"\n", want: m{"a": "b c\n\nd e f\t g"}},
		{name: "quoted keys", src: "'a b': 1\n\"c: d\": 2\n\"e\\n\": 3\n", want: m{"a b": "1", "c: d": "2", "e\n": "3"}},

		{name: "a literal block", src: "a: |\n  b\n   c\n\n  d: e # f\nf: g\n", want: m{"a": "b\n c\n\nd: e # f\n", "f": "g"}},
		{name: "a block in a list", src: "- |\n  a\n- |\n b\n- c\n", want: l{"a\n", "b\n", "c"}},
		{name: "a block in the column of a list", src: "a:\n- |\n b\n- |\n  c\nd: e\n", want: m{"a": l{"b\n", "c\n"}, "d": "e"}},
		{name: "ends of blocks", src: "a: |\n  x\n\n\nb: |-\n  x\n\n\nc: |+\n  x\n\n\nd: e\n", want: m{"a": "x\n", "b": "x", "c": "x\n\n\n", "d": "e"}},
		{name: "blocks at the end without a line end", src: "a: |\n  b", want: m{"a": "b"}},
		{name: "empty blocks", src: "a: |\nb: |-\nc: >\n\nd: |+\n\n\ne: f\n", want: m{"a": "", "b": "", "c": "", "d": "\n\n", "e": "f"}, alone: "it keeps one line end too few"},
		{name: "blocks with an indentation of their own", src: "a: |2\n    b\n  c\nd: |1-\n  e\nf:\n  - |2+\n     g\n", want: m{"a": "  b\nc\n", "d": " e", "f": l{" g\n"}}},
		{name: "a block that begins with empty lines", src: "a: |\n\n \n  b\n", want: m{"a": "\n\nb\n"}},
		{name: "blanks in blocks stay", src: "a: |-\n  b  \n    \n  c \n", want: m{"a": "b  \n  \nc "}, alone: "it drops blanks at the end"},
		{name: "tabs in blocks stay", src: "a: |\n  \tb\n  c\td\n", want: m{"a": "\tb\nc\td\n"}, alone: "it counts a tab as depth"},
		{name: "number signs in blocks stay", src: "a: |\n  # b\n    # c\n # d\ne: f\n", want: m{"a": "# b\n  # c\n", "e": "f"}},
		{name: "comments after block headers", src: "a: | # b\n  c\nd: >-   # e\n  f\n", want: m{"a": "c\n", "d": "f"}},
		{name: "a folded block", src: "a: >\n  b\n  c\n\n  d\n\n\n  e\n", want: m{"a": "b c\nd\n\ne\n"}},
		{name: "a folded block with deeper lines", src: "a: >\n  b\n   c\n  d\n  e\n\n   f\n\n  g\n", want: m{"a": "b\n c\nd e\n\n f\n\ng\n"}},
		{name: "a folded block that begins deeper", src: "a: >2\n   b\n  c\n", want: m{"a": " b\nc\n"}},
		{name: "a script", src: "run: |\n  set -e\n  case $x in [a]) echo '{';; esac\n  cat <<'EOF'\n  a: [b\n  EOF\n", want: m{"run": "set -e\ncase $x in [a]) echo '{';; esac\ncat <<'EOF'\na: [b\nEOF\n"}},

		{name: "brackets", src: "a: [b, 'c', \"d\", 1.10]\ne: {f: g, 'h': i, \"j\": k}\n", want: m{"a": l{"b", "c", "d", "1.10"}, "e": m{"f": "g", "h": "i", "j": "k"}}},
		{name: "empty brackets", src: "a: []\nb: {}\nc: [ ]\nd: { }\n", want: m{"a": l{}, "b": m{}, "c": l{}, "d": m{}}},
		{name: "brackets in brackets", src: "[[a], {b: [c, {d: e}]}, []]", want: l{l{"a"}, m{"b": l{"c", m{"d": "e"}}}, l{}}},
		{name: "brackets over lines", src: "a: [\n  b,\n  # c\n  d, # e\n\n  f\n]\ng: {h: i,\n  j: k}\n", want: m{"a": l{"b", "d", "f"}, "g": m{"h": "i", "j": "k"}}},
		{name: "a comma at the end", src: "a: [b, ]\nc: {d: e, }\n", want: m{"a": l{"b"}, "c": m{"d": "e"}}},
		{name: "values that are missing in braces", src: "{a: , b: }", want: m{"a": "", "b": ""}},
		{name: "blanks and indicators in brackets", src: "[a b, c:d, e#f, -g, h?i, http://j]", want: l{"a b", "c:d", "e#f", "-g", "h?i", "http://j"}},
		{name: "quoted keys without a space", src: `{"a":1,"b":[2],'c':"d"}`, want: m{"a": "1", "b": l{"2"}, "c": "d"}},
		{name: "colons on lines of their own", src: "{a\n : b, 'c'\n :d}", want: m{"a": "b", "c": "d"}, alone: "it wants key and colon on one line"},
		{name: "JSON with tabs", src: "{\n\t\"a\": [\n\t\t1,\n\t\ttrue\n\t],\n\t\"b\": null\n}\n", want: m{"a": l{"1", "true"}, "b": "null"}},
		{name: "brackets as items", src: "- [a, b]\n- {c: d}\n-\n  [e]\n", want: l{l{"a", "b"}, m{"c": "d"}, l{"e"}}},
		{name: "texts in brackets over lines", src: "['a\n  b', \"c\n\n  d\"]", want: l{"a b", "c\nd"}},

		{name: "a document start", src: "---\na: b\n", want: m{"a": "b"}},
		{name: "a document start after a comment, and an end", src: "# x\n--- # y\na: b\n...\n# z\n", want: m{"a": "b"}},
		{name: "a document end after a plain text", src: "a\nb\n...\n", want: "a b"},
		{name: "a document end after a block without indentation", src: "|\na\n b\n...\n", want: "a\n b\n", alone: "it wants indentation"},
		{name: "a comment between a plain text and a key", src: "a: b\n  # c\nd: e\n", want: m{"a": "b", "d": "e"}},
		{name: "dashes that are no document start", src: "a: ---\nb: |\n  ---\n  ...\n", want: m{"a": "---", "b": "---\n...\n"}},
		{name: "a byte order mark", src: "\ufeffa: b\n", want: m{"a": "b"}, alone: "it takes it for a part of the key"},
		{name: "carriage returns", src: "a: b\r\nc: |\r\n  d\r\n\r\n  e\r\nf: 'g\r\n  h'\r\n", want: m{"a": "b", "c": "d\n\ne\n", "f": "g h"}, alone: "it folds them twice"},
		{name: "characters of all planes", src: "ключ: значение\n鍵: 値\n🔑: 🚪\n", want: m{"ключ": "значение", "鍵": "値", "🔑": "🚪"}},
	}
}

func TestRead_ReadsDocumentsAsYAMLDoes(t *testing.T) {
	t.Parallel()
	for _, tt := range documents() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, wrong := readTree(tt.src)
			if wrong != "" {
				t.Fatal(wrong)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRead_AgreesWithAnotherParser(t *testing.T) {
	t.Parallel()
	for _, tt := range documents() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := otherTree(tt.src)
			same := err == nil && cmp.Equal(tt.want, got)
			switch {
			case !same && tt.alone == "":
				t.Errorf("the other parser reads %q (%v)", got, err)
			case same && tt.alone != "":
				t.Errorf("the other parser agrees, although %s", tt.alone)
			}
		})
	}
}

// otherTree reads a document with the other parser.
func otherTree(src string) (any, error) {
	f, err := parser.ParseBytes([]byte(src), 0)
	if err != nil {
		return nil, err
	}
	for _, doc := range f.Docs {
		if doc.Body != nil {
			return treeOf(doc.Body), nil
		}
	}
	return "", nil
}

func treeOf(n ast.Node) any {
	switch n := n.(type) {
	case *ast.MappingNode:
		m := map[string]any{}
		for _, e := range n.Values {
			m[e.Key.GetToken().Value] = treeOf(e.Value)
		}
		return m
	case *ast.SequenceNode:
		l := []any{}
		for _, item := range n.Values {
			l = append(l, treeOf(item))
		}
		return l
	case *ast.LiteralNode:
		return n.Value.Value
	case *ast.StringNode:
		return n.Value
	case *ast.NullNode:
		if n.Token.Type == token.ImplicitNullType {
			return ""
		}
	}
	return n.GetToken().Value
}
