package messages_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
)

func labels(pairs ...string) messages.Labels {
	m := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return messages.LabelsOf(m)
}

func TestPlacement_Match_EverythingThatIsNamedHoldsTogether(t *testing.T) {
	t.Parallel()
	worker := messages.Candidate{
		Name: "gpu-1", Instance: "0190-aa", Labels: labels("gpu", "true", "region", "eu", "disk", "fast"), Platform: "linux", Arch: "arm64",
	}
	tests := []struct {
		name      string
		placement messages.Placement
		lacks     []string
	}{
		{"nothing is required", messages.Placement{}, nil},
		{"the target is the worker's name", messages.Placement{Target: "gpu-1"}, nil},
		{"the target is the worker's instance", messages.Placement{Target: "0190-aa"}, nil},
		{"the target is another worker", messages.Placement{Target: "gpu-2"}, []string{"is not 'gpu-2'"}},
		{"the target is only the beginning of the name", messages.Placement{Target: "gpu"}, []string{"is not 'gpu'"}},
		{"the target differs in case", messages.Placement{Target: "GPU-1"}, []string{"is not 'GPU-1'"}},
		{"one label, and the worker has others beside it", messages.Placement{Labels: labels("region", "eu")}, nil},
		{"all labels", messages.Placement{Labels: labels("gpu", "true", "region", "eu")}, nil},
		{"a label that the worker lacks", messages.Placement{Labels: labels("gpu", "true", "ssd", "yes")}, []string{"lacks label ssd=yes"}},
		{"a label with another value", messages.Placement{Labels: labels("region", "us")}, []string{"has region=eu instead of region=us"}},
		{"an empty value is a value", messages.Placement{Labels: labels("region", "")}, []string{"has region=eu instead of region="}},
		{"the os", messages.Placement{Platform: "linux"}, nil},
		{"os and arch", messages.Placement{Platform: "linux/arm64"}, nil},
		{"another arch", messages.Placement{Platform: "linux/amd64"}, []string{"is linux/arm64 instead of linux/amd64"}},
		{"another os", messages.Placement{Platform: "darwin"}, []string{"is linux/arm64 instead of darwin"}},
		{"another os with the same arch", messages.Placement{Platform: "darwin/arm64"}, []string{"is linux/arm64 instead of darwin/arm64"}},
		{"an arch alone is no platform", messages.Placement{Platform: "arm64"}, []string{"is linux/arm64 instead of arm64"}},
		{
			"a target does not switch the labels off",
			messages.Placement{Target: "gpu-1", Labels: labels("gpu", "false")}, []string{"has gpu=true instead of gpu=false"},
		},
		{
			"a target does not switch the platform off",
			messages.Placement{Target: "gpu-1", Platform: "windows"}, []string{"is linux/arm64 instead of windows"},
		},
		{
			"each unmet constraint is named, in the order target, labels, platform",
			messages.Placement{Target: "x", Labels: labels("b", "1", "a", "2"), Platform: "plan9"},
			[]string{"is not 'x'", "lacks label a=2", "lacks label b=1", "is linux/arm64 instead of plan9"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tt.placement.Match(worker)
			if diff := cmp.Diff(messages.Match{OK: len(tt.lacks) == 0, Lacks: tt.lacks}, got); diff != "" {
				t.Errorf("match (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlacement_Requirement_IsTheSentenceOfTheContract(t *testing.T) {
	t.Parallel()
	tests := []struct {
		want      string
		placement messages.Placement
	}{
		{"any worker", messages.Placement{}},
		{"target 'gpu-1'", messages.Placement{Target: "gpu-1"}},
		{"labels gpu=true,region=eu", messages.Placement{Labels: labels("region", "eu", "gpu", "true")}},
		{"platform 'linux/amd64'", messages.Placement{Platform: "linux/amd64"}},
		{"labels gpu=true and platform 'linux'", messages.Placement{Labels: labels("gpu", "true"), Platform: "linux"}},
		{
			"target 'gpu-1' and labels a=1,b=2 and platform 'linux/arm64'",
			messages.Placement{Target: "gpu-1", Labels: labels("b", "2", "a", "1"), Platform: "linux/arm64"},
		},
	}
	for _, tt := range tests {
		if got := tt.placement.Requirement(); got != tt.want {
			t.Errorf("requirement of %+v is %q, want %q", tt.placement, got, tt.want)
		}
	}
}

// anyPlacement draws from few and awkward texts, so that near misses are common.
func anyPlacement() *rapid.Generator[messages.Placement] {
	text := rapid.OneOf(
		rapid.SampledFrom([]string{"", "a", "b", "a=b", "a,b", "\x00", "\x00\x01", "\x01", "\x00\x00", "linux", "'"}),
		rapid.StringOfN(rapid.RuneFrom([]rune{'a', ',', '=', 0, 1}), 0, 4, -1),
	)
	return rapid.Custom(func(t *rapid.T) messages.Placement {
		return messages.Placement{
			Target: text.Draw(t, "target"), Platform: text.Draw(t, "platform"),
			Labels: messages.LabelsOf(rapid.MapOfN(text, text, 0, 3).Draw(t, "labels")),
		}
	})
}

func TestPlacement_Key_IsEqualExactlyForEqualPlacements(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, q := anyPlacement().Draw(t, "p"), anyPlacement().Draw(t, "q")
		if equal := cmp.Equal(p, q); equal != (p.Key() == q.Key()) {
			t.Fatalf("equal placements: %v, equal keys: %v (%q and %q)", equal, !equal, p.Key(), q.Key())
		}
		if again := messages.PlacementFrom(p.Proto()); again.Key() != p.Key() {
			t.Fatalf("the placement of its own record has the key %q, not %q", again.Key(), p.Key())
		}
	})
}

func TestPlacement_Match_IsOKExactlyIfNothingLacks(t *testing.T) {
	t.Parallel()
	text := rapid.SampledFrom([]string{"", "a", "b", "linux", "linux/amd64", "amd64"})
	rapid.Check(t, func(t *rapid.T) {
		c := messages.Candidate{
			Name: text.Draw(t, "name"), Instance: text.Draw(t, "instance"), Platform: text.Draw(t, "os"), Arch: text.Draw(t, "arch"),
			Labels: messages.LabelsOf(rapid.MapOfN(text, text, 0, 3).Draw(t, "labels")),
		}
		p := messages.Placement{
			Target: text.Draw(t, "target"), Platform: text.Draw(t, "platform"),
			Labels: messages.LabelsOf(rapid.MapOfN(text, text, 0, 2).Draw(t, "wanted")),
		}
		m := p.Match(c)
		if m.OK != (len(m.Lacks) == 0) {
			t.Fatalf("ok %v with lacks %q", m.OK, m.Lacks)
		}
		// A placement holds exactly if each of its parts holds alone.
		parts := []messages.Placement{{Target: p.Target}}
		for _, l := range p.Labels {
			parts = append(parts, messages.Placement{Labels: messages.Labels{l}})
		}
		var lacks []string
		for _, part := range append(parts, messages.Placement{Platform: p.Platform}) {
			lacks = append(lacks, part.Match(c).Lacks...)
		}
		if diff := cmp.Diff(lacks, m.Lacks); diff != "" {
			t.Fatalf("what the parts lack (-alone +together):\n%s", diff)
		}
	})
}

func TestLabels_AreInKeyOrderEachKeyOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.MapOf(rapid.StringN(0, 4, -1), rapid.String()).Draw(t, "labels")
		l := messages.LabelsOf(m)
		for i := 1; i < len(l); i++ {
			if l[i-1].Key >= l[i].Key {
				t.Fatalf("%q stands before %q", l[i-1].Key, l[i].Key)
			}
		}
		if diff := cmp.Diff(m, l.Map()); diff != "" {
			t.Fatalf("map (-want +got):\n%s", diff)
		}
		for k, want := range m {
			if got, ok := l.Get(k); !ok || got != want {
				t.Fatalf("get %q: %q, %v; want %q", k, got, ok, want)
			}
		}
		if _, ok := l.Get("no such key"); ok {
			t.Fatal("a key that is not there was found")
		}
	})
}

func TestLabelsFrom_SortsAndTakesTheLaterOfTwoEqualKeys(t *testing.T) {
	t.Parallel()
	got := messages.LabelsFrom([]*messages.KeyValue{{Key: "b", Value: "1"}, {Key: "a", Value: "2"}, {Key: "b", Value: "3"}})
	if diff := cmp.Diff(messages.Labels{{"a", "2"}, {"b", "3"}}, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}
