package actors_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// pids are the PIDs of a tree, in its order.
func pids(t *testing.T, f *testkit.Fleet, p *messages.ActorTreeParams) []string {
	t.Helper()
	got, err := f.Ask(messages.VerbActorTree, p)
	if err != nil {
		t.Fatalf("actor tree %v: %v", p, err)
	}
	var list []string
	for _, item := range got.(*messages.ActorTreeResult).GetItems() {
		list = append(list, item.GetPid())
	}
	return list
}

func TestActorTree_ShowsAllOrThoseBelowOneOrOfAKindAStateOrADepth(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(pair)
		f.Worker("gpu-1", gpu()).NextDispatch().Accept()
		f.Settle()
		left, right := "swampd/runs/"+run.ID+"/main/left", "swampd/runs/"+run.ID+"/main/right"
		tests := []struct {
			name   string
			params *messages.ActorTreeParams
			want   []string
		}{
			{"all", &messages.ActorTreeParams{}, []string{
				"swampd", "swampd/fleet", "swampd/fleet/gpu-1", "swampd/leases", "swampd/leases/" + run.ID + ".0.1/1", "swampd/runs", "swampd/runs/" + run.ID,
				left, right, "swampd/scheduler", "swampd/sessions", "swampd/sessions/N", "swampd/tokens", "swampd/tokens/gpu-1",
			}},
			{"below one", &messages.ActorTreeParams{Below: "swampd/runs"}, []string{"swampd/runs", "swampd/runs/" + run.ID, left, right}},
			{"without the root's name", &messages.ActorTreeParams{Below: "runs/" + run.ID}, []string{"swampd/runs/" + run.ID, left, right}},
			{"by its end", &messages.ActorTreeParams{Below: "main/left"}, []string{left}},
			{"one that rests", &messages.ActorTreeParams{Below: "right"}, []string{right}},
			{"of a kind", &messages.ActorTreeParams{Kind: "step"}, []string{left, right}},
			{"in a state", &messages.ActorTreeParams{Kind: "step", State: "queued"}, []string{right}},
			{"with a depth that none has", &messages.ActorTreeParams{MinMailbox: 1}, nil},
		}
		for _, tt := range tests {
			got := pids(t, f, tt.params)
			for i, pid := range got {
				if strings.HasPrefix(pid, "swampd/sessions/") {
					got[i] = "swampd/sessions/N"
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
		}
		run.Cancel()
		f.Find("gpu-1").Dispatches()[0].Cancelled()
		run.Wait()
	})
}

func TestActorTree_OfAPIDThatIsNotThereNamesTheNearest(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu())
		tests := []struct {
			params *messages.ActorTreeParams
			want   string
			code   messages.Code
		}{
			{&messages.ActorTreeParams{Below: "fleet/gpu-2"}, "no actor fleet/gpu-2: the nearest are swampd/fleet/gpu-1", messages.CodeNotFound},
			{&messages.ActorTreeParams{Below: "swampd/flet"}, "no actor swampd/flet: the nearest are swampd/fleet", messages.CodeNotFound},
			{&messages.ActorTreeParams{Below: "gpu-1"}, "several actors are called gpu-1: swampd/fleet/gpu-1, swampd/tokens/gpu-1", messages.CodeNotFound},
			{&messages.ActorTreeParams{Kind: "dragon"}, "there is no kind of actor dragon", messages.CodeInvalid},
			{&messages.ActorTreeParams{Cursor: "7.1"}, "ask for the first page again", messages.CodeInvalid},
			{&messages.ActorTreeParams{Cursor: "x"}, "ask for the first page again", messages.CodeInvalid},
		}
		for _, tt := range tests {
			_, err := f.Ask(messages.VerbActorTree, tt.params)
			if codeOf(err) != tt.code || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("%v: %v, want %s: %s", tt.params, err, tt.code, tt.want)
			}
		}
	})
}
