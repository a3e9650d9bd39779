package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// interruptible follows a run until it ends or somebody interrupts.
type interruptible struct {
	app      *app
	client   *client
	follower *follower
	show     printer
	run      string
	// cancels: an interrupt cancels the run and waits for it. Otherwise it only stops following.
	cancels bool
	// stuck: the follower was left behind while it writes, so that the printer is not ours.
	stuck bool
}

// leaveTimeout is how long a follower that was told to leave may take. What it writes may block: then it is left behind.
const leaveTimeout = time.Second

// within tells whether something came in time.
func within[T any](c <-chan T, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}

// statusOf reads how a run ended from the answer of a streaming verb.
func statusOf(result proto.Message) string {
	if r, ok := result.(interface{ GetStatus() string }); ok {
		return r.GetStatus()
	}
	return ""
}

// follow returns the status with which the run ended.
func (i *interruptible) follow(ctx context.Context) (string, error) {
	signals, stop := i.app.host.Notify(append([]os.Signal{os.Interrupt, syscall.SIGTERM}, hangup()...)...)
	defer stop()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	type end struct {
		status string
		err    error
	}
	ended := make(chan end, 1)
	go func() { // follow waits for it; if it is stuck the process ends
		result, err := i.follower.run(ctx)
		ended <- end{statusOf(result), err}
	}()
	var cancelled chan error // nil never answers
	interrupted := false
	for {
		select {
		case e := <-ended:
			if interrupted && (e.err == nil || !isType[*unreachableError](e.err)) {
				e.err = errInterrupted
			}
			return e.status, e.err
		case err := <-cancelled:
			cancelled = nil
			if err != nil && !errors.Is(err, context.Canceled) {
				i.show.note("the run could not be cancelled: " + err.Error())
				leave(errInterrupted)
			}
		case s := <-signals:
			switch {
			case interrupted || isHangup(s) || !i.cancels || !i.follower.maybeAccepted():
				leave(errInterrupted)
				i.stuck = !within(ended, leaveTimeout)
				return "", errInterrupted
			default:
				interrupted = true
				i.show.note("cancelling the run, and waiting until it has ended; once more leaves at once")
				cancelled = make(chan error, 1)
				go func() { cancelled <- i.cancel(ctx) }() // ends with ctx
			}
		}
	}
}

// toEnd follows, closes the printer, and turns how the run ended into the error of the command.
func (i *interruptible) toEnd(ctx context.Context) error {
	status, err := i.follow(ctx)
	if !i.stuck {
		if closeErr := i.show.close(); err == nil {
			err = closeErr
		}
	}
	switch {
	case err != nil:
		return serverDiagnoses(err)
	case status == string(messages.RunSucceeded):
		return nil
	default:
		return errFailed
	}
}

// cancel asks for the cancel until it is durable. It is not asked for before the run exists: it could overtake it.
func (i *interruptible) cancel(ctx context.Context) error {
	select {
	case <-i.follower.accepted:
	case <-ctx.Done():
		return ctx.Err()
	}
	start := time.Now()
	for try := 0; ; try++ {
		_, err := i.client.call(ctx, messages.VerbRunCancel, &messages.RunCancelParams{RunId: i.run, By: i.app.user()}, true)
		switch {
		case err == nil, errors.Is(err, &messages.Fault{Code: messages.CodeEnded}):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !transient(err) || time.Since(start) > i.follower.patience:
			return err
		}
		if err := i.client.pause(ctx, try); err != nil {
			return err
		}
	}
}

// user names whoever asks, for the books.
func (a *app) user() string {
	for _, name := range []string{"USER", "USERNAME", "LOGNAME"} {
		if user, ok := a.host.env(name); ok {
			return user
		}
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}
