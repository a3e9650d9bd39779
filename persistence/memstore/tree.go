package memstore

import (
	"bytes"
	"hash/maphash"
)

// node is a persistent treap: a change copies the path to the root and leaves every older root as it was. So a view and a
// snapshot are a pointer each.
type node struct {
	key, value  []byte
	priority    uint64
	left, right *node
}

func (n *node) get(key []byte) ([]byte, bool) {
	for n != nil {
		switch c := bytes.Compare(key, n.key); {
		case c == 0:
			return n.value, true
		case c < 0:
			n = n.left
		default:
			n = n.right
		}
	}
	return nil, false
}

// put returns the tree with the key set. The priority is a hash of the key, which keeps the shape a matter of the content
// alone.
func (n *node) put(seed maphash.Seed, key, value []byte) *node {
	if n == nil {
		return &node{key: key, value: value, priority: maphash.Bytes(seed, key)}
	}
	c := *n
	switch order := bytes.Compare(key, n.key); {
	case order == 0:
		c.value = value
	case order < 0:
		c.left = n.left.put(seed, key, value)
		if c.left.priority > c.priority {
			l := *c.left
			c.left, l.right = l.right, &c
			return &l
		}
	default:
		c.right = n.right.put(seed, key, value)
		if c.right.priority > c.priority {
			r := *c.right
			c.right, r.left = r.left, &c
			return &r
		}
	}
	return &c
}

func (n *node) remove(key []byte) *node {
	if n == nil {
		return nil
	}
	order := bytes.Compare(key, n.key)
	if order == 0 {
		return merge(n.left, n.right)
	}
	c := *n
	if order < 0 {
		c.left = n.left.remove(key)
	} else {
		c.right = n.right.remove(key)
	}
	return &c
}

// merge joins two trees of which every key of a is below every key of b.
func merge(a, b *node) *node {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		c := *a
		c.right = merge(a.right, b)
		return &c
	default:
		c := *b
		c.left = merge(a, b.left)
		return &c
	}
}

// walk calls fn for the keys from from up to below to; it returns false once fn has.
func (n *node) walk(from, to []byte, back bool, fn func(key, value []byte) bool) bool {
	if n == nil {
		return true
	}
	above := bytes.Compare(n.key, from) >= 0
	below := to == nil || bytes.Compare(n.key, to) < 0
	first, second := n.left, n.right
	inFirst, inSecond := above, below
	if back {
		first, second = second, first
		inFirst, inSecond = inSecond, inFirst
	}
	if inFirst && !first.walk(from, to, back, fn) {
		return false
	}
	if above && below && !fn(n.key, n.value) {
		return false
	}
	return !inSecond || second.walk(from, to, back, fn)
}
