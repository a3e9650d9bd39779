package actors_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// found are the records that a query has, as kind and name, over all its pages.
func found(t *testing.T, f *testkit.Fleet, query string, limit int32) []string {
	t.Helper()
	all := []string{}
	for cursor := ""; ; {
		got, err := f.Ask(messages.VerbDataQuery, &messages.DataQueryParams{Query: query, Limit: limit, Cursor: cursor})
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		r := got.(*messages.DataQueryResult)
		if int(r.GetCount()) != len(r.GetItems()) || limit > 0 && r.GetCount() > limit {
			t.Errorf("%s: a page of %d items with count %d", query, len(r.GetItems()), r.GetCount())
		}
		for _, item := range r.GetItems() {
			m := item.AsMap()
			name := m["name"]
			for _, other := range []string{"stepName", "step"} {
				if name == nil {
					name = m[other]
				}
			}
			all = append(all, fmt.Sprintf("%s %v", m["kind"], name))
		}
		if r.Cursor == nil {
			return all
		}
		cursor = r.GetCursor()
	}
}

func TestQuery_FindsArtifactsAndTheFleetsBooks(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t, testkit.WithLoopback(2))
		busy, idle := f.Worker("gpu-1", gpu()), f.Worker("idle-1", testkit.Labels{"zone": "a"})
		gone := f.Worker("gone-1")
		f.Settle()
		gone.Drop()
		f.Settle()
		f.Submit(single)
		d := busy.NextDispatch().Accept()
		f.Submit(single) // it waits
		f.Settle()
		mustPut(t, d, "reports/a", "hello", "k1")
		mustPut(t, d, "reports/a", "hello again", "k2")
		mustPut(t, d, "b", strings.Repeat("x", 2000), "k3")
		tests := []struct {
			query string
			want  []string
		}{
			{`kind == "worker" && status == "idle"`, []string{"worker idle-1"}},
			{`kind == "worker" && status == "busy"`, []string{"worker gpu-1"}},
			{`kind == "worker" && status == "disconnected"`, []string{"worker gone-1"}},
			{`kind == "worker" && labels.zone == "a"`, []string{"worker idle-1"}},
			{`kind == "worker" && size(activeDispatchIds) > 0`, []string{"worker gpu-1"}},
			{`kind == "pending"`, []string{"pending only"}},
			{`kind == "pending" && requirement.contains("gpu=true")`, []string{"pending only"}},
			{`kind == "lease" && hasWrites && worker == "gpu-1"`, []string{"lease only"}},
			{`kind == "token" && status == "enrolled" && name.startsWith("gpu")`, []string{"token gpu-1"}},
			{`kind == "artifact"`, []string{"artifact b", "artifact reports/a"}},
			{`name.startsWith("reports/") && version == 2 && size == 11`, []string{"artifact reports/a"}},
			{`size / 1000 >= 2`, []string{"artifact b"}},
			{`size > 1e3`, []string{"artifact b"}},
			{`kind == "artifact" && format == "file" && timestamp(createdAt) < timestamp("2100-01-01T00:00:00Z") && digest.size() == 64`, []string{"artifact b", "artifact reports/a"}},
			{`step == "only" && kind != "lease"`, []string{"artifact b", "artifact reports/a"}},
			{`kind == "artifact" && platform == null`, []string{"artifact b", "artifact reports/a"}},
			{`labels.zone == "a"`, []string{"worker idle-1"}},
			{`!(size > 1)`, []string{}},
			{`false`, []string{}},
			{`status == "idle" || name == "b"`, []string{"artifact b", "worker idle-1"}},
		}
		for _, tt := range tests {
			if diff := cmp.Diff(tt.want, found(t, f, tt.query, 0)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.query, diff)
			}
		}
		everything := found(t, f, "true", 0)
		if len(everything) != 2+1+1+3+3 {
			t.Errorf("all that there is: %v", everything)
		}
		for _, limit := range []int32{1, 2, 7} {
			if diff := cmp.Diff(everything, found(t, f, "true", limit)); diff != "" {
				t.Errorf("in pages of %d (-want +got):\n%s", limit, diff)
			}
		}
		_ = idle
	})
}

func TestQuery_ShowsWorkersAsTheirListDoes(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		f.Worker("gpu-1", gpu())
		f.Settle()
		got, err := f.Ask(messages.VerbDataQuery, &messages.DataQueryParams{Query: `kind == "worker"`})
		if err != nil {
			t.Fatal(err)
		}
		listed, err := messages.MarshalShape(f.Workers()[0])
		if err != nil {
			t.Fatal(err)
		}
		item := got.(*messages.DataQueryResult).GetItems()[0]
		if item.GetFields()["kind"].GetStringValue() != "worker" {
			t.Errorf("its kind is %v", item.GetFields()["kind"])
		}
		delete(item.GetFields(), "kind")
		shown, err := protojson.Marshal(item)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(decoded(t, listed), decoded(t, shown)); diff != "" {
			t.Errorf("a worker (-listed +queried):\n%s", diff)
		}
	})
}

func TestQuery_OneThatIsNoneIsRefusedWithItsPlace(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		for query, want := range map[string]string{
			"":                                    "a query is needed",
			`kind ==`:                             "query:1:8:",
			"kind == \"a\" &&\n  nothing == 1":    "query:2:3: undeclared reference to 'nothing'",
			`1 + 1`:                               "query:1:1: the expression is a int",
			`kind.frobnicate()`:                   "query:1:16:",
			strings.Repeat("(", 200):              "query:1:",
			`"` + strings.Repeat("x", 5000) + `"`: "at most 4096 bytes",
			"kind == \"\xff\"":                    "query",
		} {
			_, err := f.Ask(messages.VerbDataQuery, &messages.DataQueryParams{Query: query})
			if messages.CodeOf(err) != messages.CodeInvalid || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%.40q: %v, want invalid with %q", query, err, want)
			}
		}
	})
}

func TestQuery_NoneHoldsTheOrchestratorUp(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		for i := range 30 {
			err := f.Data(func(ctx context.Context, d *actors.Data) error {
				_, err := d.Put(ctx, actors.Writer{}, actors.WriteRequest{Name: fmt.Sprintf("n%02d", i), Body: strings.NewReader("x")})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		list := "[" + strings.TrimSuffix(strings.Repeat("1,", 100), ",") + "]"
		endless := fmt.Sprintf("%[1]s.all(a, %[1]s.all(b, %[1]s.all(c, %[1]s.all(d, a + b + c + d > 0))))", list)
		if got := found(t, f, endless, 0); len(got) > 0 { // its cost is above the limit for each record
			t.Errorf("it is true for %v", got)
		}
		if got := found(t, f, `name.matches("(a*)*(a*)*(a*)*$") && kind == "artifact"`, 0); len(got) != 30 {
			t.Errorf("a pattern matches %d", len(got))
		}
		if got := found(t, f, list+".exists(a, a > 1) || name == 'n07'", 0); !slices.Equal(got, []string{"artifact n07"}) {
			t.Errorf("a costly one within the limit finds %v", got)
		}
	})
}

// decoded is JSON as a value, in whatever order its fields stand.
func decoded(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
