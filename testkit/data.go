package testkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// Credential is what the worker was sent last for the dispatch, to reach data with.
func (d *Dispatch) Credential() string {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	return d.credential
}

// Put writes a version, as the step of the dispatch does through its worker: it is repeated, with its request id and with the
// credential of that moment, until the orchestrator has answered. The error is that answer.
func (d *Dispatch) Put(name, body, request string) (*messages.ArtifactItem, error) {
	var item *messages.ArtifactItem
	err := d.reach(func(ctx context.Context, data *actors.Data, w actors.Writer) error {
		done, err := data.Put(ctx, w, actors.WriteRequest{Name: name, RequestID: request, Body: strings.NewReader(body)})
		item = done.Item
		return err
	})
	return item, err
}

// Append appends, as [Dispatch.Put] puts.
func (d *Dispatch) Append(name, body, request string) (*messages.ArtifactItem, error) {
	var item *messages.ArtifactItem
	err := d.reach(func(ctx context.Context, data *actors.Data, w actors.Writer) error {
		done, err := data.Append(ctx, w, actors.WriteRequest{Name: name, RequestID: request, Body: strings.NewReader(body)})
		item = done.Item
		return err
	})
	return item, err
}

// Delete deletes a version of an artifact, or all with 0, as [Dispatch.Put] puts.
func (d *Dispatch) Delete(name string, version uint32, request string) error {
	return d.reach(func(ctx context.Context, data *actors.Data, w actors.Writer) error {
		return data.Delete(ctx, w, actors.DeleteRequest{Name: name, Version: version, RequestID: request})
	})
}

// reach asks the data plane with the dispatch's credential until there is an answer.
func (d *Dispatch) reach(fn func(context.Context, *actors.Data, actors.Writer) error) error {
	d.w.f.t.Helper()
	return d.w.f.reach(func(ctx context.Context, data *actors.Data) error {
		w, err := data.Authenticate(d.Credential())
		if err == nil {
			err = fn(ctx, data, w)
		}
		return err
	})
}

// Data asks the data plane as a client with a server token does, until there is an answer.
func (f *Fleet) Data(fn func(context.Context, *actors.Data) error) error {
	f.t.Helper()
	return f.reach(fn)
}

// Artifact is the body of an artifact's latest version; empty and without an item where there is none.
func (f *Fleet) Artifact(name string) (string, *messages.ArtifactItem) {
	f.t.Helper()
	var body []byte
	var item *messages.ArtifactItem
	err := f.reach(func(_ context.Context, data *actors.Data) error {
		a, err := data.Open(name, 0)
		if err != nil {
			return err
		}
		item = a.Item
		body, err = io.ReadAll(a)
		return errors.Join(err, a.Close())
	})
	if err != nil && messages.CodeOf(err) != messages.CodeNotFound {
		f.t.Errorf("testkit: read artifact %s: %v", name, err)
	}
	return string(body), item
}

func (f *Fleet) reach(fn func(context.Context, *actors.Data) error) error {
	ctx, cancel := f.patience()
	defer cancel()
	for {
		err := f.reachOnce(ctx, fn)
		code := messages.CodeOf(err)
		again := errors.Is(err, errLostAnswer) || errors.Is(err, persistence.ErrClosed) || code == messages.CodeUnavailable ||
			code == messages.CodeNotReady || code == messages.CodeUnauthorized || code == messages.CodeNoSpace
		if err == nil || !again || ctx.Err() != nil || !f.sleep(askAgain) {
			return err
		}
	}
}

// errLostAnswer: whoever was to answer panicked, as a handler or with its process.
var errLostAnswer = errors.New("the answer is lost")

func (f *Fleet) reachOnce(ctx context.Context, fn func(context.Context, *actors.Data) error) (err error) {
	f.mu.Lock()
	system, alive := f.system, f.alive
	f.mu.Unlock()
	if system == nil {
		return messages.Faultf(messages.CodeUnavailable, "the orchestrator is down")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(alive, func() { cancel(context.Cause(alive)) })()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errLostAnswer, p)
		}
	}()
	return fn(ctx, system.Data())
}

// Fleet is the fleet of the dispatch's worker.
func (d *Dispatch) Fleet() *Fleet { return d.w.f }
