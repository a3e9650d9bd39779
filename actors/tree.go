package actors

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// actorTree shows the actors. Steps that wait, and runs that do nothing but wait, take no memory: they are shown as they
// will be when somebody speaks to them.
func (sys *System) actorTree(p *messages.ActorTreeParams) (proto.Message, error) {
	result := &messages.ActorTreeResult{}
	shown := make(map[string]bool)
	show := func(id string, item func() *messages.ActorItem) {
		if below := p.GetBelow(); !shown[id] && (below == "" || id == below || strings.HasPrefix(id, below+"/")) {
			shown[id] = true
			result.Items = append(result.Items, item())
		}
	}
	sys.byPID.Range(func(id, i any) bool {
		show(id.(string), i.(*actorInfo).item)
		return true
	})
	runs := ""
	if i, ok := sys.refs.Load(routerOf(kindRun)); ok {
		runs = i.(*actorInfo).pid.GetId()
	}
	resting := func(at address, state string, since *timestamppb.Timestamp) {
		id := runs + "/" + at.id
		show(id, func() *messages.ActorItem {
			return &messages.ActorItem{Pid: id, Kind: at.kind, State: state, StartedAt: since}
		})
	}
	err := sys.scan(persistence.KindPending, false, "", newBody[messages.PendingRecord], func(_ persistence.Record, m proto.Message) bool {
		w := m.(*messages.PendingRecord)
		resting(runAddress(w.GetRunId()), string(messages.RunRunning), w.GetQueuedAt())
		resting(stepAddress(w.GetRunId(), w.GetJob(), w.GetStep()), string(messages.StepQueued), w.GetQueuedAt())
		return true
	})
	slices.SortFunc(result.Items, func(a, b *messages.ActorItem) int {
		return slices.Compare(strings.Split(a.GetPid(), "/"), strings.Split(b.GetPid(), "/"))
	})
	result.Count = int32(len(result.Items))
	return result, err
}
