package workflow

import (
	"fmt"
	"strings"
)

// shape is a value of the file in which expressions may stand anywhere.
type shape struct {
	expr  *Template // a text, or one value
	items []*shape
	keys  []string // of a map, with items
	isMap bool
	value any // nothing in it is an expression
}

// shape reads a value.
func (d *decoder) shape(n *node, what string, w want) *shape {
	switch n.kind {
	case scalar:
		if t := d.templateOf(n, what, w); t != nil {
			return &shape{expr: t}
		}
	case list:
		s := &shape{}
		dynamic := false
		for _, item := range n.items {
			in := d.shape(item, what, wantAny)
			dynamic = dynamic || in.dynamic()
			s.items = append(s.items, in)
		}
		if dynamic {
			return s
		}
	case mapping:
		s := &shape{isMap: true}
		dynamic := false
		for i := range n.entries {
			in := d.shape(n.entries[i].value, what, wantAny)
			dynamic = dynamic || in.dynamic()
			s.items, s.keys = append(s.items, in), append(s.keys, n.entries[i].key)
		}
		if dynamic {
			return s
		}
	default: // reported
	}
	return &shape{value: valueOf(n)}
}

// dynamic tells whether there is an expression in it.
func (s *shape) dynamic() bool { return s.expr != nil || s.items != nil }

// eval is the value.
func (s *shape) eval(in *Scope) (any, error) {
	switch {
	case s.expr != nil:
		return s.expr.value(in)
	case s.isMap:
		m := make(map[string]any, len(s.items))
		for i, item := range s.items {
			v, err := item.eval(in)
			if err != nil {
				return nil, err
			}
			m[s.keys[i]] = v
		}
		return m, nil
	case s.items != nil:
		l := make([]any, len(s.items))
		for i, item := range s.items {
			v, err := item.eval(in)
			if err != nil {
				return nil, err
			}
			l[i] = v
		}
		return l, nil
	default:
		return s.value, nil
	}
}

// String is for people.
func (s *shape) String() string {
	if s == nil {
		return ""
	}
	switch {
	case s.expr != nil:
		return s.expr.String()
	case s.items != nil:
		var words []string
		for i, item := range s.items {
			if s.isMap {
				words = append(words, s.keys[i]+": "+item.String())
			} else {
				words = append(words, item.String())
			}
		}
		return "[" + strings.Join(words, ", ") + "]"
	default:
		text, err := JSONOf(s.value)
		if err != nil {
			return fmt.Sprint(err)
		}
		return text
	}
}

// MarshalText is String.
func (s *shape) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
