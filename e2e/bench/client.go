package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"github.com/swampd/swampd/messages"
)

// client is one submitter.
type client struct {
	conn *websocket.Conn
	next int
	// events is called with the events that come before an answer, if it is set.
	events func(*messages.Event)
}

func (s *server) connect(ctx context.Context) (*client, error) {
	conn, _, err := websocket.Dial(ctx, s.url+messages.Path, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + s.admin}}, Subprotocols: []string{messages.Subprotocol},
	})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(messages.MaxFrame)
	return &client{conn: conn}, nil
}

func (c *client) close() { _ = c.conn.CloseNow() }

// call sends a request and returns its answer.
func (c *client) call(ctx context.Context, r *messages.Request) (*messages.Response, error) {
	c.next++
	data, err := messages.EncodeFrame(&messages.Frame{Id: strconv.Itoa(c.next), Body: &messages.Frame_Request{Request: r}}, messages.CodingProtobuf)
	if err != nil {
		return nil, err
	}
	if err := c.conn.Write(ctx, websocket.MessageBinary, data); err != nil {
		return nil, err
	}
	for {
		_, data, err := c.conn.Read(ctx)
		if err != nil {
			return nil, err
		}
		f, err := messages.DecodeFrame(data, messages.CodingProtobuf)
		if err != nil {
			return nil, err
		}
		switch {
		case f.GetResponse() != nil:
			return f.GetResponse(), nil
		case f.GetError() != nil:
			return nil, f.GetError().Fault()
		case f.GetEvent() != nil && c.events != nil:
			c.events(f.GetEvent())
		}
	}
}

// run submits a workflow and waits for the end of its run.
func (c *client) run(ctx context.Context, source string) error {
	r, err := c.submit(ctx, source, true)
	if err != nil {
		return err
	}
	if s := r.GetStatus(); s != string(messages.RunSucceeded) {
		shown, err := c.call(ctx, messages.NewRequest(messages.VerbRunShow, &messages.RunShowParams{RunId: r.GetRunId()}))
		if err != nil {
			return err
		}
		return fmt.Errorf("run %s ended as %s: %s", r.GetRunId(), s, shown.GetRunShow().GetError())
	}
	return nil
}

func (c *client) submit(ctx context.Context, source string, follow bool) (*messages.WorkflowRunResult, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	r, err := c.call(ctx, messages.NewRequest(messages.VerbWorkflowRun, &messages.WorkflowRunParams{RunId: id.String(), Source: source, Follow: follow}))
	return r.GetWorkflowRun(), err
}

// token creates an enrollment token for any number of machines.
func (c *client) token(ctx context.Context, name string) (string, error) {
	r, err := c.call(ctx, messages.NewRequest(messages.VerbWorkerTokenCreate, &messages.WorkerTokenCreateParams{Name: name, MaxEnrollments: -1}))
	return r.GetWorkerTokenCreate().GetToken(), err
}
