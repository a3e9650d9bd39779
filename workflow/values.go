package workflow

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/swampd/swampd/messages"
)

const (
	maxName       = 128 // bytes of the name of a workflow, job, step, argument or model
	maxLabelKey   = 63
	maxLabelValue = 255
	maxSeconds    = 10 * 365 * 24 * 60 * 60 // ten years, far from where a duration overflows
	minSeconds    = 0.001                   // shorter would round to 0, which means for ever
)

// is checks the kind of a value. What is a sentence's subject.
func (d *decoder) is(n *node, want kind, what string) bool {
	if n.kind == want && !n.null() {
		return true
	}
	if n.kind != broken && !d.found.drop() {
		d.found.add(n.at, "%s must be %s, but is %s", what, kindName(want), describe(n))
	}
	return false
}

func kindName(k kind) string {
	switch k {
	case mapping:
		return "a map"
	case list:
		return "a list"
	default:
		return "a text"
	}
}

func describe(n *node) string {
	switch {
	case n.null():
		return "empty"
	case n.kind == scalar:
		return "the text " + quote(n.text)
	default:
		return kindName(n.kind)
	}
}

// text is a scalar as the file writes it: 1.10 stays 1.10, and true is the text true.
func (d *decoder) text(n *node, what string) (string, bool) {
	if !d.is(n, scalar, what) {
		return "", false
	}
	return n.text, true
}

// name is a text that people will see as a name.
func (d *decoder) name(e *entry) string {
	s := d.nameOrTemplate(e)
	if hasExpr(s) {
		d.found.add(e.value.at, "%s holds no expressions: only the name of a step with 'forEach' may", quote(e.key))
		return ""
	}
	return s
}

// nameOrTemplate is a name, or a text that expressions make one of.
func (d *decoder) nameOrTemplate(e *entry) string {
	s, ok := d.text(e.value, quote(e.key))
	if !ok || !d.isName(e.value.at, s, quote(e.key)) {
		return ""
	}
	return s
}

func (d *decoder) isName(at int, s, what string) bool {
	switch {
	case strings.TrimSpace(s) == "":
		d.found.add(at, "%s is empty", what)
	case len(s) > maxName:
		d.found.add(at, "%s has %d bytes: at most %d", what, len(s), maxName)
	case !isPrintable(s):
		d.found.add(at, "%s holds a character that cannot be printed", what)
	default:
		return true
	}
	return false
}

func isPrintable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return false
		}
	}
	return true
}

// seconds is a length of time, in seconds with fractions.
func (d *decoder) seconds(e *entry) (time.Duration, bool) {
	n := e.value
	if n.kind == broken {
		return 0, false
	}
	f, ok := number(n)
	what := quote(e.key)
	switch {
	case n.null():
		d.found.add(n.at, "%s is empty: write seconds, such as 300", what)
	case n.kind == scalar && n.plain && notFinite(n.text):
		d.found.add(n.at, "%s is a number of seconds, not %s", what, quote(n.text))
	case n.kind == scalar && !ok:
		d.found.add(n.at, "%s is a number of seconds, not the text %s: write seconds, such as 300", what, quote(n.text))
	case !ok:
		d.found.add(n.at, "%s is a number of seconds, not %s: write seconds, such as 300", what, kindName(n.kind))
	case f < 0:
		d.found.add(n.at, "%s must not be negative", what)
	case f > maxSeconds:
		d.found.add(n.at, "%s is at most %d seconds, which is ten years", what, maxSeconds)
	case f > 0 && f < minSeconds:
		d.found.add(n.at, "%s is 0 or at least %v seconds", what, minSeconds)
	default:
		return time.Duration(math.Round(f * float64(time.Second))), true
	}
	return 0, false
}

// number reads a plain decimal number; the other notations of YAML and Go are no lengths of time.
func number(n *node) (float64, bool) {
	if n.kind != scalar || !n.plain || n.text == "" || strings.Trim(n.text, "0123456789.eE+-") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(n.text, 64)
	return f, err == nil || math.IsInf(f, 0)
}

func notFinite(s string) bool {
	switch strings.ToLower(strings.TrimLeft(s, "+-")) {
	case ".inf", "inf", "infinity", ".nan", "nan":
		return true
	}
	return false
}

// pairs reads a map of texts into key order. Check reports a bad key or value.
func (d *decoder) pairs(e *entry, check func(e *entry) bool) (messages.Labels, bool) {
	if !d.is(e.value, mapping, quote(e.key)) {
		return nil, false
	}
	ok := true
	pairs := make(messages.Labels, 0, len(e.value.entries))
	for i := range e.value.entries {
		p := &e.value.entries[i]
		if p.value.kind == broken || !check(p) {
			ok = false
			continue
		}
		pairs = append(pairs, messages.Label{Key: p.key, Value: p.value.text})
	}
	slices.SortFunc(pairs, func(a, b messages.Label) int { return strings.Compare(a.Key, b.Key) })
	return pairs, ok
}

// isPair checks that a value is a text, said of its key.
func (d *decoder) isPair(e *entry, what string) bool {
	switch {
	case e.value.null():
		d.found.add(e.value.at, `the %s %s has no value: write "" for an empty one`, what, quote(e.key))
	case e.value.kind != scalar:
		d.found.add(e.value.at, "the %s %s must be a text, but is %s", what, quote(e.key), describe(e.value))
	default:
		return true
	}
	return false
}

// label checks one label.
func (d *decoder) label(e *entry) bool {
	ok := true
	if !isLabelKey(e.key) {
		d.found.add(e.at, "the label key %s: a key has 1 to %d letters, digits and . _ / -", quote(e.key), maxLabelKey)
		ok = false
	}
	if !d.isPair(e, "label") {
		return false
	}
	if !hasExpr(e.value.text) && len(e.value.text) > maxLabelValue || !isPrintable(e.value.text) {
		d.found.add(e.value.at, "the value of the label %s: a value is printable and has at most %d bytes", quote(e.key), maxLabelValue)
		ok = false
	}
	return ok
}

func isLabelKey(s string) bool {
	if s == "" || len(s) > maxLabelKey {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; !letterOrDigit(c) && strings.IndexByte("._/-", c) < 0 {
			return false
		}
	}
	return true
}

func letterOrDigit(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// variable checks one variable of an environment: what no system could hand to a process is refused here.
func (d *decoder) variable(e *entry) bool {
	ok := true
	if e.key == "" || strings.ContainsAny(e.key, "= ") || !isPrintable(e.key) {
		d.found.add(e.at, "the variable %s: a name is printable, without '=' and spaces", quote(e.key))
		ok = false
	}
	if !d.isPair(e, "variable") {
		return false
	}
	if strings.IndexByte(e.value.text, 0) >= 0 {
		d.found.add(e.value.at, "the value of the variable %s holds a NUL", quote(e.key))
		ok = false
	}
	return ok
}

// word reads one of a few words.
func (d *decoder) word(n *node, what string, words ...string) (string, bool) {
	s, ok := d.text(n, what)
	if !ok || slices.Contains(words, s) {
		return s, ok
	}
	hint := ""
	if near, ok := nearest(s, words); ok {
		hint = fmt.Sprintf(": did you mean '%s'?", near)
	}
	d.found.add(n.at, "%s is %s, not %s%s", what, oneOf(words), quote(s), hint)
	return "", false
}

// oneOf lists words in a sentence: "a or b", "a, b or c".
func oneOf(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
