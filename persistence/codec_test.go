package persistence

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func drawRecord(t *rapid.T) Record {
	return Record{
		Kind:    rapid.SampledFrom(allKinds()).Draw(t, "kind"),
		ID:      rapid.String().Draw(t, "id"),
		Version: rapid.Uint64Min(1).Draw(t, "version"),
		Epoch:   rapid.Uint64().Draw(t, "epoch"),
		State:   rapid.String().Draw(t, "state"),
		Ended:   rapid.Bool().Draw(t, "ended"),
		Time:    time.Unix(0, rapid.Int64().Draw(t, "time")).UTC(),
		Body:    rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
	}
}

func allKinds() []Kind {
	return []Kind{
		KindRun, KindSource, KindStep, KindPending, KindLease, KindOutput, KindToken, KindBinding, KindWorker, KindScheduler,
		KindArtifact, KindArtifactVersion, KindDataRequest,
	}
}

func TestRecord_EncodedAndDecodedIsTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawRecord(t)
		value := appendRecord(nil, &want)
		got, err := DecodeRecord(value)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestRecord_AnyChangedByteIsFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		record := drawRecord(t)
		value := appendRecord(nil, &record)
		at := rapid.IntRange(0, len(value)-1).Draw(t, "at")
		value[at] ^= rapid.ByteMin(1).Draw(t, "flip")
		if _, err := DecodeRecord(value); err == nil {
			t.Fatal("a damaged value was decoded")
		}
	})
}

func TestRecord_TruncatedIsFound(t *testing.T) {
	t.Parallel()
	value := appendRecord(nil, &Record{Kind: KindRun, ID: "r", Version: 1, State: "running", Body: []byte("body")})
	for n := range value {
		var decode *DecodeError
		if _, err := DecodeRecord(value[:n]); !errors.As(err, &decode) {
			t.Fatalf("%d of %d bytes: %v", n, len(value), err)
		}
	}
}

func TestRecord_ForeignFormatIsFoundEvenWithARightChecksum(t *testing.T) {
	t.Parallel()
	value := appendRecord(nil, &Record{Kind: KindRun, ID: "r", Version: 1})
	value[checksumSize] = 99
	seal(value)
	var decode *DecodeError
	if _, err := DecodeRecord(value); !errors.As(err, &decode) || decode.What != "unknown format 99" {
		t.Fatalf("got %v", err)
	}
}

func TestKindCodes_AreEachTheirOwn(t *testing.T) {
	t.Parallel()
	seen := map[byte]Kind{}
	for _, kind := range allKinds() {
		code := kindCode(kind)
		if other, dup := seen[code]; dup || code == 0 {
			t.Errorf("%s and %s have code %d", kind, other, code)
		}
		seen[code] = kind
		if kindOf(code) != kind {
			t.Errorf("%s comes back as %s", kind, kindOf(code))
		}
		if infoOf(kind).prefix == "" {
			t.Errorf("%s has no prefix", kind)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	value := appendRecord(nil, &Record{Kind: KindRun, ID: "r", Version: 7, Epoch: 3, State: "running", Ended: true, Body: []byte("x")})
	f.Add(value)
	f.Add(value[checksumSize:])
	f.Fuzz(func(t *testing.T, value []byte) {
		// As the fuzzer does not find checksums, it gets a right one too.
		sealed := append(make([]byte, checksumSize), value...)
		seal(sealed)
		for _, v := range [][]byte{value, sealed} {
			record, err := DecodeRecord(v)
			if err != nil {
				var decode *DecodeError
				if !errors.As(err, &decode) {
					t.Fatalf("not a DecodeError: %v", err)
				}
				continue
			}
			back, err := DecodeRecord(appendRecord(nil, &record))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(record, back); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

func FuzzDecodePack(f *testing.F) {
	f.Add([]byte{packFormat, 1, 1, 'x'}, uint64(4))
	f.Fuzz(func(t *testing.T, value []byte, last uint64) {
		sealed := append(make([]byte, checksumSize), value...)
		seal(sealed)
		next := uint64(0)
		err := decodePack(sealed, last, func(e Event) {
			if next != 0 && e.Seq != next {
				t.Fatalf("event %d follows %d", e.Seq, next-1)
			}
			next = e.Seq + 1
		})
		if err == nil && next != 0 && next != last+1 {
			t.Fatalf("ends with %d, not %d", next-1, last)
		}
	})
}

func TestPack_EncodedAndDecodedIsTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var op operation
		appends := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Append {
			return Append{
				Stream: rapid.SampledFrom([]string{"a", "b", "c\x00"}).Draw(t, "stream"),
				Body:   rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
			}
		}), 1, 20).Draw(t, "appends")
		if err := op.prepare(&Commit{Appends: appends}, 1, time.Time{}); err != nil {
			t.Fatal(err)
		}
		const first = 41
		got := map[string][][]byte{}
		for j := range op.packs {
			op.number(j, first)
			p := &op.packs[j]
			stream, last, ok := splitNumbered(p.key, prefixEvents)
			if !ok || stream != p.stream {
				t.Fatalf("key %q names stream %q", p.key, stream)
			}
			err := decodePack(p.value, last, func(e Event) {
				if e.Seq != first+uint64(len(got[stream])) {
					t.Fatalf("event %d of %q", e.Seq, stream)
				}
				got[stream] = append(got[stream], e.Body)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for i, a := range appends {
			at := op.seqs[i] - first
			if !bytes.Equal(got[a.Stream][at], a.Body) {
				t.Fatalf("append %d: number %d has another body", i, op.seqs[i])
			}
		}
	})
}
