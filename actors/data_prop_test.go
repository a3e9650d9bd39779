package actors_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// dataTwin is what the data plane has to hold, in a few lines.
type dataTwin struct {
	last     map[string]uint32
	versions map[string]map[uint32]string
	open     map[string]uint32 // the version that the writer has open
}

func (d *dataTwin) put(name, body string) uint32 {
	d.last[name]++
	if d.versions[name] == nil {
		d.versions[name] = make(map[uint32]string)
	}
	d.versions[name][d.last[name]] = body
	if d.last[name] > 20 {
		delete(d.versions[name], d.last[name]-20)
	}
	delete(d.open, name)
	return d.last[name]
}

func (d *dataTwin) add(name, body string) uint32 {
	v, ok := d.open[name]
	if _, there := d.versions[name][v]; ok && there {
		d.versions[name][v] += body
		return v
	}
	v = d.put(name, body)
	d.open[name] = v
	return v
}

func (d *dataTwin) remove(name string, version uint32) bool {
	if version == 0 {
		there := len(d.versions[name]) > 0
		delete(d.versions, name)
		return there
	}
	_, there := d.versions[name][version]
	delete(d.versions[name], version)
	return there
}

// TestData_AnyStoryIsWhatItsTwinSays has a step write, through crashes at any batch of commits and answers that are lost:
// what is acknowledged is there once, whole, and nothing else.
func TestData_AnyStoryIsWhatItsTwinSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		moves := rapid.SliceOfN(rapid.Custom(anyDataMove), 1, 40).Draw(rt, "moves")
		testkit.Bubble(t, func(t *testing.T) {
			tellData(t, moves)
		})
		if t.Failed() {
			rt.Fatal("see above")
		}
	})
}

type dataMove struct {
	kind    string
	name    string
	body    string
	crash   int // batches until the process dies; 0: it does not
	version uint32
	lose    bool // the answer
}

func anyDataMove(t *rapid.T) dataMove {
	return dataMove{
		kind:  rapid.SampledFrom([]string{"put", "put", "append", "append", "append", "delete", "delete version", "puts"}).Draw(t, "kind"),
		name:  rapid.SampledFrom([]string{"a", "a", "dir/b"}).Draw(t, "name"),
		body:  strings.Repeat(rapid.StringMatching("[a-z]{0,5}").Draw(t, "body"), rapid.SampledFrom([]int{1, 1, 1, 5000, 20_000}).Draw(t, "times")),
		crash: rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(t, "crash"), version: rapid.Uint32Range(1, 5).Draw(t, "version"),
		lose: rapid.IntRange(0, 3).Draw(t, "lose") == 0,
	}
}

func tellData(t *testing.T, moves []dataMove) {
	t.Helper()
	var mu sync.Mutex
	losing := false
	f := testkit.Start(t, testkit.WithFaults(), testkit.WithHook(func(p actors.Point) {
		mu.Lock()
		lost := losing && p.Kind == "data" && p.Stage == "committed"
		losing = losing && !lost
		mu.Unlock()
		if lost {
			panic("the answer is lost")
		}
	}))
	w := f.Worker("gpu-1", gpu(), testkit.Persistent())
	f.Settle()
	run := f.Submit(single)
	d := w.NextDispatch().Accept()
	twin := &dataTwin{last: map[string]uint32{}, versions: map[string]map[uint32]string{}, open: map[string]uint32{}}
	for i, m := range moves {
		mu.Lock()
		losing = m.lose
		mu.Unlock()
		if m.crash > 0 {
			f.CrashAtBatch(m.crash, time.Second)
		}
		key := fmt.Sprintf("k%d", i)
		switch m.kind {
		case "put":
			wantVersion(t, m, twin.put(m.name, m.body))(d.Put(m.name, m.body, key))
		case "puts":
			for n := range 8 {
				body := fmt.Sprintf("%s%d", m.body, n)
				wantVersion(t, m, twin.put(m.name, body))(d.Put(m.name, body, fmt.Sprintf("%s.%d", key, n)))
			}
		case "append":
			wantVersion(t, m, twin.add(m.name, m.body))(d.Append(m.name, m.body, key))
		default:
			version := m.version
			if m.kind == "delete" {
				version = 0
			}
			there := twin.remove(m.name, version)
			if err := d.Delete(m.name, version, key); there != (err == nil) || !there && messages.CodeOf(err) != messages.CodeNotFound {
				t.Errorf("%s of %s, which is there: %v: %v", m.kind, m.name, there, err)
			}
		}
	}
	f.CrashAtBatch(0, 0)
	f.Advance(10 * time.Second)
	for _, name := range []string{"a", "dir/b"} {
		if diff := cmp.Diff(digests(twin.versions[name]), stored(t, f, name)); diff != "" {
			t.Errorf("versions of %s after %v (-twin +stored):\n%s", name, kinds(moves), diff)
		}
	}
	d.Succeed()
	run.WaitStatus(messages.RunSucceeded)
	wantBodies(t, f)
}

func kinds(moves []dataMove) []string {
	var all []string
	for _, m := range moves {
		all = append(all, fmt.Sprintf("%s %s %d crash %d", m.kind, m.name, len(m.body), m.crash))
	}
	return all
}

func wantVersion(t *testing.T, m dataMove, want uint32) func(*messages.ArtifactItem, error) {
	t.Helper()
	return func(item *messages.ArtifactItem, err error) {
		t.Helper()
		if err != nil || item.GetVersion() != want {
			t.Errorf("%s of %s is version %d, want %d (%v)", m.kind, m.name, item.GetVersion(), want, err)
		}
	}
}

// digests and stored are versions, each with the length and digest of its body.
func digests(versions map[uint32]string) []string {
	all := []string{}
	for _, v := range slices.Backward(slices.Sorted(maps.Keys(versions))) {
		sum := sha256.Sum256([]byte(versions[v]))
		all = append(all, fmt.Sprintf("%d: %d %s", v, len(versions[v]), hex.EncodeToString(sum[:])))
	}
	return all
}

func stored(t *testing.T, f *testkit.Fleet, name string) []string {
	t.Helper()
	all := []string{}
	got, err := f.Ask(messages.VerbDataVersions, &messages.DataVersionsParams{Name: name})
	if messages.CodeOf(err) == messages.CodeNotFound {
		return all
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range got.(*messages.DataVersionsResult).GetItems() {
		err := f.Data(func(_ context.Context, d *actors.Data) error {
			a, err := d.Open(name, item.GetVersion())
			if err != nil {
				return err
			}
			body, err := io.ReadAll(a)
			if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != item.GetDigest() || float64(len(body)) != item.GetSize() {
				t.Errorf("version %d of %s is not what is said of it", item.GetVersion(), name)
			}
			all = append(all, fmt.Sprintf("%d: %d %s", item.GetVersion(), len(body), item.GetDigest()))
			return errors.Join(err, a.Close())
		})
		if err != nil {
			t.Error(err)
		}
	}
	return all
}

// Many write at once, to one artifact: each gets a version of its own, and its own body in it; and one commit marks.
func TestData_ManyWritersAtOnce(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		marks := 0
		var mu sync.Mutex
		f := testkit.Start(t, testkit.WithHook(func(p actors.Point) {
			if p.Kind == "lease" && p.Command == "markWrites" && p.Stage == "committed" {
				mu.Lock()
				marks++
				mu.Unlock()
			}
		}))
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		f.Settle()
		const writers = 15
		items := make([]*messages.ArtifactItem, writers)
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				var err error
				if items[i], err = d.Put("a", fmt.Sprint("body ", i), fmt.Sprint("k", i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		seen := make(map[uint32]bool)
		for i, item := range items {
			seen[item.GetVersion()] = true
			sum := sha256.Sum256([]byte(fmt.Sprint("body ", i)))
			if item.GetDigest() != hex.EncodeToString(sum[:]) {
				t.Errorf("writer %d got version %d with another body", i, item.GetVersion())
			}
		}
		if len(seen) != writers {
			t.Errorf("%d writers got %d versions", writers, len(seen))
		}
		if marks != 1 {
			t.Errorf("%d commits mark, want one", marks)
		}
		before := f.Journal().Stats().Commits
		mustPut(t, d, "b", "later", "k")
		if n := f.Journal().Stats().Commits - before; n != 1 {
			t.Errorf("a later write takes %d commits, want one", n)
		}
		d.Succeed()
		run.WaitStatus(messages.RunSucceeded)
	})
}
