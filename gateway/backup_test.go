package gateway

import (
	"context"
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

func TestRPC_ABackupIsLinesOfBase64(t *testing.T) {
	t.Parallel()
	fake := newFake()
	fake.do = func(_ context.Context, _ messages.Verb, _ proto.Message, emit actors.Emit) (proto.Message, error) {
		for _, piece := range []string{"swampd backup\n", "\x00\xff"} {
			err := emit(&messages.Event{Event: &messages.Event_Backup{Backup: &messages.BackupChunk{Data: []byte(piece)}}})
			if err != nil {
				return nil, err
			}
		}
		return &messages.BackupResult{Bytes: 16, Digest: "abc"}, nil
	}
	got := serve(t, fake, nil).call(t, http.MethodPost, "/v1/rpc/backup", "", withToken())
	const want = `{"data":"c3dhbXBkIGJhY2t1cAo="}` + "\n" + `{"data":"AP8="}` + "\n" + `{"bytes":16,"digest":"abc"}` + "\n"
	if got.status != http.StatusOK || got.body != want {
		t.Errorf("status %d, %s", got.status, got.body)
	}
}

func TestRPC_AnEventOfAWorkerIsAFaultOfOurs(t *testing.T) {
	t.Parallel()
	fake := newFake()
	fake.do = func(_ context.Context, _ messages.Verb, _ proto.Message, emit actors.Emit) (proto.Message, error) {
		return nil, emit(&messages.Event{Event: &messages.Event_Started{Started: &messages.DispatchStarted{}}})
	}
	if got := serve(t, fake, nil).call(t, http.MethodPost, "/v1/rpc/backup", "", withToken()); got.status != http.StatusInternalServerError {
		t.Errorf("status %d, %s", got.status, got.body)
	}
}
