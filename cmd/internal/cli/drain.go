package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

func (a *app) workerDrainCommand() *cobra.Command {
	wait := false
	patience := durationValue{d: followPatience}
	cmd := &cobra.Command{
		Use:   "drain NAME",
		Short: "Let a worker finish what it runs, and leave",
		Long: "Let a worker finish what it runs, and leave: it takes nothing new, and its process ends with 0. With --wait the\n" +
			"command ends when the worker has left. As long as it runs something, swamp worker resume takes the drain back.",
		Example: "  swamp worker drain gpu-1 --wait",
		Args:    wants("NAME"),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it has left")
	addPatience(cmd, &patience)
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		c, err := a.newClient(from)
		if err != nil {
			return err
		}
		d := drainer{app: a, client: c, follower: newFollower(c, patience.d), name: args[0]}
		w, err := d.drain(cmd.Context(), wait)
		if err != nil {
			return err
		}
		return a.printWish(w, d.text(w))
	})
}

// drainer drains one worker.
type drainer struct {
	app      *app
	client   *client
	follower *follower
	name     string
	before   *messages.WorkerDetail // nil: not known
}

// drain asks for the drain, and waits for its end if asked to.
func (d *drainer) drain(ctx context.Context, wait bool) (*messages.WorkerItem, error) {
	before, err := d.show(ctx)
	switch {
	case err == nil:
		d.before = before
	case messages.CodeOf(err) != messages.CodeNotFound: // the drain names the nearest
		return nil, err
	}
	if !wait {
		return answer[*messages.WorkerItem](d.client.call(ctx, messages.VerbWorkerDrain, &messages.WorkerDrainParams{Name: d.name}, true))
	}
	d.follower.note = func(text string) { fmt.Fprintln(d.app.host.Stderr, text) }
	d.follower.request = func(position) (messages.Verb, proto.Message) {
		return messages.VerbWorkerDrain, &messages.WorkerDrainParams{Name: d.name, Wait: true}
	}
	w, err := answer[*messages.WorkerItem](d.follower.run(ctx))
	if err == nil || !d.before.GetConnected() {
		return w, err
	}
	// It may have left while the orchestrator was gone: then the repeat of the request finds nobody to drain.
	if after, showErr := d.show(ctx); showErr == nil && !after.GetConnected() {
		return briefly(after), nil
	}
	return nil, err
}

func (d *drainer) show(ctx context.Context) (*messages.WorkerDetail, error) {
	return answer[*messages.WorkerDetail](d.client.call(ctx, messages.VerbWorkerShow, &messages.WorkerShowParams{Name: d.name}, true))
}

// text says in one line what has become of the worker.
func (d *drainer) text(w *messages.WorkerItem) string {
	n := len(w.GetActiveDispatchIds())
	already := d.before.GetIntent() == string(messages.IntentDraining)
	switch {
	case !w.GetConnected() && already && !d.before.GetConnected():
		return "has left already"
	case !w.GetConnected():
		return "has left"
	case n == 0 && already:
		return "drains already, and leaves"
	case n == 0:
		return "leaves"
	case already:
		return fmt.Sprintf("drains already, and still runs %s", steps(n))
	default:
		return fmt.Sprintf("drains, and leaves after %s", steps(n))
	}
}

// briefly is a worker as it stands in the list.
func briefly(w *messages.WorkerDetail) *messages.WorkerItem {
	return &messages.WorkerItem{
		Name: w.GetName(), Status: w.GetStatus(), Connected: w.GetConnected(), Intent: w.GetIntent(), Health: w.GetHealth(), Reason: w.Reason,
		Labels: w.GetLabels(), Platform: w.Platform, Arch: w.Arch, InstanceUuid: w.InstanceUuid, MachineId: w.MachineId, Capacity: w.GetCapacity(),
		ActiveDispatchIds: w.GetActiveDispatchIds(), EnrolledAt: w.GetEnrolledAt(), LastSeenAt: w.GetLastSeenAt(), Version: w.Version,
	}
}

func steps(n int) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", n)
}
