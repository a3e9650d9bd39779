package cli

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/swampd/swampd/cmd/internal/daemon"
	"github.com/swampd/swampd/messages"
)

func (a *app) dataGetCommand() *cobra.Command {
	version := countValue{max: 1<<31 - 1}
	file := ""
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Read an artifact",
		Long: "Read the latest version of an artifact, or the one of --version, to standard output or to a file. What breaks off is\n" +
			"gone on with, of the same version. Its digest is checked: a file gets its name when it is whole and right, and one that\n" +
			"is there is replaced then.",
		Example: "  swamp data get reports/daily\n  swamp data get reports/daily --version 3 -o report.csv",
		Args:    wants("NAME"),
	}
	cmd.Flags().Var(&version, "version", "the version to read; without it, the latest")
	cmd.Flags().Lookup("version").DefValue = ""
	cmd.Flags().StringVarP(&file, "to", "o", "", "`FILE` to write it to")
	f := a.addData(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		d, err := a.newDataClient(from, f)
		if err != nil {
			return err
		}
		defer d.close()
		return a.interruptibly(cmd.Context(), func(ctx context.Context) error {
			resp, err := d.do(ctx, http.MethodGet, artifactPath(args[0]), versionQuery(version.n), http.Header{}, nil)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if file == "" {
				_, err := d.receive(ctx, resp, a.host.Stdout)
				return err
			}
			size, err := d.receiveFile(ctx, resp, file)
			if err != nil {
				return err
			}
			n, _ := strconv.ParseUint(resp.Header.Get("Swamp-Version"), 10, 32)
			return a.printReceived(args[0], uint32(n), resp.Header.Get("Content-Type"), size, file)
		})
	})
}

// printReceived says what was written to a file.
func (a *app) printReceived(name string, version uint32, contentType string, size int64, file string) error {
	if a.json() {
		return json.NewEncoder(a.host.Stdout).Encode(struct {
			Name        string `json:"name"`
			Version     uint32 `json:"version"`
			ContentType string `json:"contentType"`
			Size        int64  `json:"size"`
			File        string `json:"file"`
		}{name, version, contentType, size, file})
	}
	_, err := fmt.Fprintf(a.host.Stdout, "%s version %d, %s, in %s\n", oneLine(name), version, sizeText(uint64(size)), oneLine(file))
	return err
}

// receive writes a body, and checks its digest.
func (d *dataClient) receive(ctx context.Context, resp *http.Response, w io.Writer) (int64, error) {
	sum := sha256.New()
	out := &markedWriter{w: w}
	n, err := io.Copy(io.MultiWriter(out, sum), resp.Body)
	switch {
	case out.err != nil:
		return n, fmt.Errorf("write what was read: %w", out.err)
	case ctx.Err() != nil:
		return n, context.Cause(ctx)
	case isType[*messages.Fault](err):
		return n, err
	case err != nil:
		return n, d.unreachable(fmt.Errorf("the answer broke off after %d bytes: %w", n, err), false)
	}
	want := resp.Header.Get("Repr-Digest")
	if got := "sha-256=:" + base64.StdEncoding.EncodeToString(sum.Sum(nil)) + ":"; want != "" && strings.HasPrefix(want, "sha-256=") && want != got {
		return n, errors.New("what came is damaged: its SHA-256 is not the one that was announced")
	}
	return n, nil
}

// markedWriter remembers that it was the writing that failed.
type markedWriter struct {
	w   io.Writer
	err error
}

func (m *markedWriter) Write(p []byte) (int, error) {
	n, err := m.w.Write(p)
	m.err = err
	return n, err
}

// receiveFile writes a body beside a file, which it replaces when all of it has come.
func (d *dataClient) receiveFile(ctx context.Context, resp *http.Response, file string) (n int64, err error) {
	partial := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+"."+uuid.NewString()[:8]+partialSuffix)
	f, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", file, daemon.PlainPathError(err))
	}
	defer func() {
		if err != nil {
			_ = os.Remove(partial) // what matters is why there is no file
		}
	}()
	n, err = d.receive(ctx, resp, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return n, err
	}
	if err := os.Rename(partial, file); err != nil {
		return n, fmt.Errorf("give %s its name: %w", file, errors.Unwrap(err))
	}
	return n, nil
}
