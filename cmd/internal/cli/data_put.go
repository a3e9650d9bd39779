package cli

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/swampd/swampd/cmd/internal/daemon"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/worker/dataproxy"
)

func (a *app) dataPutCommand() *cobra.Command {
	return a.dataWriteCommand(http.MethodPut, &cobra.Command{
		Use:   "put NAME [FILE]",
		Short: "Write a new version of an artifact",
		Long: "Write a new version of an artifact from a file, or from standard input where FILE is - or missing. When the command\n" +
			"ends with 0 the version is whole and durable; else nothing of it is there, or it was written and only the answer is\n" +
			"missing. It repeats by itself what lost its answer, and counts once.",
		Example: "  swamp data put reports/daily report.csv --content-type text/csv\n" +
			"  make report | swamp data put reports/daily",
	})
}

func (a *app) dataAppendCommand() *cobra.Command {
	return a.dataWriteCommand(http.MethodPost, &cobra.Command{
		Use:   "append NAME [FILE]",
		Short: "Append to the version that this step has open, or begin one",
		Long: "Append a file, or standard input where FILE is - or missing, to the version of an artifact that the same step has\n" +
			"begun by appending, or begin a version. When the command ends with 0 what was appended is durable, once.",
		Example: "  echo \"done: $item\" | swamp data append progress",
	})
}

func (a *app) dataWriteCommand(method string, cmd *cobra.Command) *cobra.Command {
	contentType := ""
	cmd.Args = wants("NAME", "[FILE]")
	cmd.Flags().StringVar(&contentType, "content-type", "", "what it is, as a media `TYPE`; application/json is checked to be JSON")
	f := a.addData(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		d, err := a.newDataClient(from, f)
		if err != nil {
			return err
		}
		defer d.close()
		source, name := a.host.Stdin, "standard input"
		if len(args) > 1 && args[1] != "-" {
			name = args[1]
			file, err := os.Open(name)
			if err != nil {
				return usagef("read %s: %v", name, daemon.PlainPathError(err))
			}
			defer file.Close() //nolint:errcheck // it was only read
			source = file
		}
		item := &messages.ArtifactItem{}
		err = a.interruptibly(cmd.Context(), func(ctx context.Context) error {
			return d.write(ctx, method, args[0], contentType, source, item)
		})
		if errors.Is(err, os.ErrInvalid) || isType[*os.PathError](err) {
			return fmt.Errorf("read %s: %w", name, daemon.PlainPathError(err))
		}
		if err != nil {
			return err
		}
		return a.printArtifact(item)
	})
}

// write sends a body, and returns when it is durable.
func (d *dataClient) write(ctx context.Context, method, name, contentType string, source io.Reader, item *messages.ArtifactItem) error {
	header := http.Header{"Idempotency-Key": {uuid.NewString()}}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	summed := &summedBody{r: source, sum: sha256.New(), trailer: http.Header{"Content-Digest": nil}}
	var body io.Reader = summed
	if file, ok := source.(*os.File); ok && !d.inStep {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			// It can be read again, and need not be kept to be repeated.
			if body, err = dataproxy.NewFileBody(file); err != nil {
				return err
			}
			summed = nil
		}
	}
	resp, err := d.do(ctx, method, artifactPath(name), nil, header, body)
	if summed != nil && summed.err != nil {
		return fmt.Errorf("read what is to be written: %w", summed.err)
	}
	if err != nil {
		return err
	}
	if err := readShape(resp, item); err != nil {
		return err
	}
	if sum := summed.hex(); method == http.MethodPut && sum != "" && item.GetDigest() != sum {
		return fmt.Errorf("what was written is not what was sent: its SHA-256 is %s, not %s", item.GetDigest(), sum)
	}
	return nil
}

// summedBody is a body whose digest follows it as a trailer.
type summedBody struct {
	r       io.Reader
	sum     hash.Hash
	trailer http.Header
	err     error // of reading it
	whole   bool
}

func (b *summedBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.sum.Write(p[:n])
	switch {
	case errors.Is(err, io.EOF):
		b.whole = true
		b.trailer.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(b.sum.Sum(nil))+":")
	case err != nil:
		b.err = err
	}
	return n, err
}

// hex is the digest of a body that was read to its end.
func (b *summedBody) hex() string {
	if b == nil || !b.whole {
		return ""
	}
	return hex.EncodeToString(b.sum.Sum(nil))
}
