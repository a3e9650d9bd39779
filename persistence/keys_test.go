package persistence

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func FuzzNumberedKey(f *testing.F) {
	f.Add("run", uint64(1), "run\x00", uint64(2))
	f.Add("", uint64(0), "a/b%2f", uint64(1<<63))
	f.Fuzz(func(t *testing.T, a string, n uint64, b string, m uint64) {
		ka, kb := numberedKey(prefixEvents, a, n), numberedKey(prefixEvents, b, m)
		id, back, ok := splitNumbered(ka, prefixEvents)
		if !ok || id != a || back != n {
			t.Fatalf("%q, %d comes back as %q, %d, %v", a, n, id, back, ok)
		}
		want := strings.Compare(a, b)
		if want == 0 {
			switch {
			case n < m:
				want = -1
			case n > m:
				want = 1
			}
		}
		if got := bytes.Compare(ka, kb); got != want {
			t.Fatalf("order of (%q, %d) and (%q, %d) is %d, of their keys %d", a, n, b, m, want, got)
		}
		if a != b && bytes.HasPrefix(kb, ka[:len(ka)-8]) {
			t.Fatalf("a key of %q lies among those of %q", b, a)
		}
	})
}

func FuzzSplitNumbered(f *testing.F) {
	f.Add(numberedKey(prefixEvents, "a\x00b", 3))
	f.Add([]byte("e/\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, key []byte) {
		id, n, ok := splitNumbered(key, prefixEvents)
		if ok && !bytes.Equal(numberedKey(prefixEvents, id, n), key) {
			t.Fatalf("%q is read as %q, %d", key, id, n)
		}
	})
}

func TestPrefixEnd_IsTheFirstKeyAboveThePrefix(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.SliceOfN(rapid.Byte(), 1, 4).Draw(t, "prefix")
		key := rapid.SliceOfN(rapid.Byte(), 0, 6).Draw(t, "key")
		end := prefixEnd(prefix)
		inside := bytes.Compare(key, prefix) >= 0 && (end == nil || bytes.Compare(key, end) < 0)
		if inside != bytes.HasPrefix(key, prefix) {
			t.Fatalf("prefix %x, end %x, key %x", prefix, end, key)
		}
	})
}

func TestRecordKeys_OfDifferentKindsNeverMeet(t *testing.T) {
	t.Parallel()
	seen := map[string]Kind{}
	for _, kind := range allKinds() {
		info := infoOf(kind)
		for _, prefix := range []string{info.prefix, info.ended, info.history} {
			if prefix == "" {
				continue
			}
			for other, k := range seen {
				if strings.HasPrefix(prefix, other) || strings.HasPrefix(other, prefix) {
					t.Errorf("%s (%s) and %s (%s)", prefix, kind, other, k)
				}
			}
			seen[prefix] = kind
		}
	}
}
