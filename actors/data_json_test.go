package actors

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// valid is jsonCheck over pieces that are cut at random places.
func valid(doc string, cut func(left int) int) bool {
	j := newJSONCheck()
	for doc != "" {
		n := cut(len(doc))
		if j.write([]byte(doc[:n])) != nil {
			return false
		}
		doc = doc[n:]
	}
	return j.end() == nil
}

func whole(left int) int { return left }

func one(int) int { return 1 }

func TestJSONCheck_AgreesWithTheStandardLibrary(t *testing.T) {
	t.Parallel()
	docs := []string{
		"", " ", "null", "nul", "nulll", "true", "false", "falsey", "0", "-0", "01", "-", "1.", ".5", "1.5", "1e", "1e5", "1e+", "1E-05", "-1.25e+10", "1 2",
		`""`, `"a`, `"\u00e9"`, `"\u00"`, `"\x"`, "\"a\nb\"", `"\"\\\/\b\f\n\r\t"`, "[]", "[1,]", "[,1]", "[1 2]", "[1,2]", "[[]]", "[}", "{}", "{1:2}",
		`{"a":1}`, `{"a":1,}`, `{"a"}`, `{"a":}`, `{"a":1 "b":2}`, `{"a":{"b":[1,{"c":null}]}}`, "]", "}", " [ 1 , 2 ] ", "\ufeff1", "1\x00", "[1]x",
		`{"a":"b","c":[true,false,null]}`, "tru", "nan", "+1", "'a'", `{"a":1}{"b":2}`, "\x7f", `"ü"`, strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999),
		strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001), "[1]\n", "1\n", "-1e5 ", "0.0", "00", "1ee5", "1e5.5", "--1", "1-",
	}
	for _, doc := range docs {
		want := json.Valid([]byte(doc))
		if got, pieces := valid(doc, whole), valid(doc, one); got != want || pieces != want {
			t.Errorf("%.40q is valid: %v, in single bytes %v, want %v", doc, got, pieces, want)
		}
	}
	if valid(strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000), whole) != json.Valid([]byte(strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000))) {
		t.Error("the deepest document is not decided alike")
	}
}

func jsonStory(t *rapid.T) {
	doc := rapid.StringOfN(rapid.SampledFrom([]rune(`{}[]",:\u0123eE+-. tfnrulasé`+"\n")), 0, 20, -1).Draw(t, "document")
	if rapid.Bool().Draw(t, "of values") {
		data, err := json.Marshal(anyJSON(3).Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		doc = string(data)
		if i := rapid.IntRange(-1, len(doc)).Draw(t, "a byte is missing"); i >= 0 && i < len(doc) {
			doc = doc[:i] + doc[i+1:]
		}
	}
	want := json.Valid([]byte(doc))
	if got := valid(doc, func(left int) int { return rapid.IntRange(1, left).Draw(t, "piece") }); got != want {
		t.Errorf("%q is valid: %v, want %v", doc, got, want)
	}
}

func anyJSON(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Float64Range(-1e300, 1e300).AsAny(), rapid.Int().AsAny(), rapid.String().AsAny(),
	}
	if depth > 0 {
		kinds = append(kinds, rapid.SliceOfN(anyJSON(depth-1), 0, 3).AsAny(), rapid.MapOfN(rapid.String(), anyJSON(depth-1), 0, 3).AsAny())
	}
	return rapid.OneOf(kinds...)
}

func TestJSONCheck_AnyDocument(t *testing.T) {
	t.Parallel()
	rapid.Check(t, jsonStory)
}

func FuzzJSONCheck(f *testing.F) { f.Fuzz(rapid.MakeFuzz(jsonStory)) }
