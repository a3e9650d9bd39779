package sim

import "time"

// chance decides by name and not by order: the same seed gives the same answer to the same question, whatever else was
// asked before. So a scenario that lost some of its operations decides the rest as it did with them.
type chance uint64

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// fold mixes words into a hash.
func fold(h uint64, words ...string) uint64 {
	for _, w := range words {
		for i := range len(w) {
			h = (h ^ uint64(w[i])) * fnvPrime
		}
		h = (h ^ 0xff) * fnvPrime
	}
	return h
}

// mix spreads what was folded over all bits.
func mix(h uint64) uint64 {
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}

// number answers a question that has a number.
func (c chance) number(question, n uint64) uint64 { return mix(question ^ mix(uint64(c)^mix(n))) }

// of answers a question that is a few words.
func (c chance) of(words ...string) uint64 { return c.number(fold(fnvOffset, words...), 0) }

// percent is true so many times in a hundred.
func (c chance) percent(p int, words ...string) bool { return int(c.of(words...)%100) < p }

// length is how long a step takes that has nothing out of the ordinary: mostly a moment, at times long.
func (c chance) length(name string) time.Duration {
	most := 2 * time.Second
	switch c.of("length", name) % 8 {
	case 0:
		most = 90 * time.Second
	case 1, 2:
		most = 15 * time.Second
	}
	return c.within(time.Millisecond, most, "time", name)
}

// within is a time from least up to most. It differs from all others in its nanoseconds, so that no two things happen at
// the same instant.
func (c chance) within(least, most time.Duration, words ...string) time.Duration {
	return least + time.Duration(c.of(words...)%uint64(most-least+1))
}
