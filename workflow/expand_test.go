package workflow

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func eachPlan(t testing.TB, name, in string) *Plan {
	t.Helper()
	p, err := parse("f", []byte("name: x\ninputs: {list: {type: array, default: [a, b]}}\njobs:\n- name: j\n  steps:\n  - {name: taken-1, run: echo}\n  - name: "+
		name+"\n    run: echo\n    labels: {pool: '${{ self.i }}'}\n    env: {I: '${{ self.i }}', FIX: a}\n    forEach: {item: i, in: "+in+"}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPlan_ExpandNamesInstances(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in, want string }{
		{"s", "[a, b]", "[{s-a a} {s-b b}]"},
		{"s", "[]", "[]"},
		{"s", "{}", "[]"},
		{"s", "[1, 2.5, true, ~]", "[{s-1 1} {s-2.5 2.5} {s-true true} {s-3 <nil>}]"},
		{"s", "[{a: 1}, {a: 1}]", "[{s-0 map[a:1]} {s-1 map[a:1]}]"},
		{"s", "{y: 1, x: 2}", "[{s-x map[key:x value:2]} {s-y map[key:y value:1]}]"},
		{"'${{ self.i.key }} on ${{ self.i.value }}'", "{x: 2}", "[{x on 2 map[key:x value:2]}]"},
		{"s", "'${{ inputs.list }}'", "[{s-a a} {s-b b}]"},
		{"s", "[1, '${{ inputs.list[1] }}', {a: '${{ inputs.list }}'}]", "[{s-1 1} {s-b b} {s-2 map[a:[a b]]}]"},
		{"s", "['ü ö', 'a/b']", "[{s-ü ö ü ö} {s-a/b a/b}]"},
	}
	for _, tt := range tests {
		t.Run(tt.name+" "+tt.in, func(t *testing.T) {
			t.Parallel()
			p := eachPlan(t, tt.name, tt.in)
			got, err := p.Expand(1, scopeOf(t, p))
			if text := fmt.Sprint(got); err != nil || text != tt.want {
				t.Errorf("got %s, %v", text, err)
			}
		})
	}
}

func TestPlan_ExpandRefusesNamesThatAreNotOneStepEach(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in, want string }{
		{"s", "[a, b, a]", "items 0 and 2 have the same name 's-a'"},
		{"'${{ self.i.k }}'", "[{k: 1}, {k: '1'}]", "items 0 and 1 have the same name '1'"},
		{"'${{ self.i }}'", "['']", "the name of item 0 is empty"},
		{"taken", "[1]", "the name of item 0, 'taken-1', is that of another step of the job"},
		{"s", `["a\nb"]`, "a name is printable and has at most 128 bytes"},
		{"s", "['" + strings.Repeat("x", 200) + "']", "a name is printable and has at most 128 bytes"},
		{"'${{ self.i.k }}'", "[{}]", "the name of item 0: ${{ self.i.k }}: there is no key 'k'"},
		{"s", "\"${{ fromJSON('3') }}\"", "'in' gives an integer, not a list or a map"},
	}
	for _, tt := range tests {
		t.Run(tt.name+" "+tt.in, func(t *testing.T) {
			t.Parallel()
			p := eachPlan(t, tt.name, tt.in)
			got, err := p.Expand(1, scopeOf(t, p))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestPlan_ResolvingOneInstanceChangesNoOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		items := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,5}`), 1, 8, rapid.ID[string]).Draw(rt, "items")
		p := eachPlan(t, "s", "["+strings.Join(items, ", ")+"]")
		before := fmt.Sprintf("%+v", p.Steps[1])
		all, err := p.Expand(1, scopeOf(t, p))
		if err != nil {
			// A word such as null or true is none of the list's texts, and its name may be that of another.
			return
		}
		got := make([]*Step, len(all))
		for _, i := range rapid.Permutation(numbers(len(all))).Draw(rt, "order") {
			scope := scopeOf(t, p)
			scope.Item = all[i].Item
			if got[i], err = p.Resolve(1, scope); err != nil {
				rt.Fatal(err)
			}
		}
		for i, s := range got {
			want, _ := textOf(all[i].Item)
			pool, _ := s.Placement.Labels.Get("pool")
			v, _ := s.Env.Get("I")
			if pool != want || v != want {
				rt.Fatalf("instance %d has %q and %q, not %q", i, pool, v, want)
			}
		}
		if after := fmt.Sprintf("%+v", p.Steps[1]); after != before {
			rt.Fatalf("the template changed from %s to %s", before, after)
		}
	})
}

func TestLimiter_LetsGoWhatItsDumbTwinLetsGo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		p.Concurrency = rapid.IntRange(0, 4).Draw(t, "run")
		for i := range p.Jobs {
			p.Jobs[i].Concurrency = rapid.IntRange(0, 3).Draw(t, "job")
		}
		for i := range p.Steps {
			if n := rapid.IntRange(0, 2).Draw(t, "step"); n > 0 {
				p.Steps[i].Controls = &Controls{Concurrency: n}
			}
		}
		l := NewLimiter(p)
		step := map[int]int{} // by ordinal
		var held, under []int
		next := 0
		mayGo := func(o int) bool {
			run, job, own := 0, 0, 0
			for _, u := range under {
				run++
				if p.Steps[step[u]].Job == p.Steps[step[o]].Job {
					job++
				}
				if step[u] == step[o] {
					own++
				}
			}
			s := &p.Steps[step[o]]
			limit := 0
			if s.Controls != nil {
				limit = s.Controls.Concurrency
			}
			fits := func(n, most int) bool { return most == 0 || n < most }
			return fits(run, p.Concurrency) && fits(job, p.Jobs[s.Job].Concurrency) && fits(own, limit)
		}
		for range 60 {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				s := rapid.IntRange(0, len(p.Steps)-1).Draw(t, "held")
				step[next] = s
				held = append(held, next)
				l.Hold(s, next)
				next++
			case 1:
				if len(under) > 0 {
					k := rapid.IntRange(0, len(under)-1).Draw(t, "done")
					l.Done(step[under[k]])
					under = slices.Delete(under, k, k+1)
				}
			case 2:
				if next > 0 {
					o := rapid.IntRange(0, next-1).Draw(t, "drop")
					k := slices.Index(held, o)
					if got := l.Drop(step[o], o); got != (k >= 0) {
						t.Fatalf("drop of %d: %t", o, got)
					}
					if k >= 0 {
						held = slices.Delete(held, k, k+1)
					}
				}
			default:
				want := slices.IndexFunc(held, mayGo)
				got, ok := l.Next()
				if ok != (want >= 0) || ok && got != held[want] {
					t.Fatalf("next is %d, %t; held %v, under way %v", got, ok, held, under)
				}
				if ok {
					under = append(under, got)
					held = slices.Delete(held, want, want+1)
				}
			}
			if l.Held() != len(held) {
				t.Fatalf("%d are held, not %d", l.Held(), len(held))
			}
		}
	})
}

func TestPlan_InstancesShareTheirTemplate(t *testing.T) {
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, "%d, ", i)
	}
	p := eachPlan(t, "s", "["+b.String()+"]")
	scope := scopeOf(t, p)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	all, err := p.Expand(1, scope)
	if err != nil {
		t.Fatal(err)
	}
	steps := make([]*Step, len(all))
	for i := range all {
		scope.Item = all[i].Item
		if steps[i], err = p.Resolve(1, scope); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (after.HeapAlloc - before.HeapAlloc) / 10_000; each > 2048 {
		t.Errorf("an instance takes %d bytes", each)
	}
	runtime.KeepAlive(steps)
	if diff := cmp.Diff("7", steps[7].Env[1].Value); diff != "" {
		t.Error(diff)
	}
}
