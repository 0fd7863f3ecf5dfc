package fake

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"time"
)

// errArtifactGone is an artifact that is no longer served.
var errArtifactGone = errors.New("file not found")

// download gets the files of an artifact. While source-controller is stopped it tries for three and a half minutes, whatever
// spec.timeout says.
func (c *kustomizeController) download(ctx context.Context, ks *managed, url string) (Files, error) {
	if err := c.flux.faults.step(ctx, DownloadStep, ks.name()); err != nil {
		return nil, err
	}
	const tries, longest = 10, 30 * time.Second
	pause := 5 * time.Second
	for try := 1; !c.flux.Source.Running(); try++ {
		if try == tries {
			return nil, fmt.Errorf("failed to download archive: GET %s giving up after %d attempt(s): Get %q: dial tcp: connect: connection refused", url, tries, url)
		}
		if !pauseFor(ctx, pause) {
			return nil, ctx.Err()
		}
		pause = min(2*pause, longest)
	}
	files, ok := c.flux.artifacts.get(url)
	if !ok {
		return nil, errArtifactGone
	}
	return files, nil
}

// below returns the files in a folder of the artifact, by their paths in it.
func below(files Files, folder string) (Files, error) {
	folder = strings.TrimPrefix(path.Join("/", folder), "/")
	if folder == "" {
		return files, nil
	}
	found := Files{}
	for name, content := range files {
		if rest, ok := strings.CutPrefix(name, folder+"/"); ok {
			found[rest] = content
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("kustomization path not found: stat %s: no such file or directory", path.Join(temporary(), folder))
	}
	return found, nil
}

// temporary is where an artifact was extracted to. As with the real controller no two runs have the same.
func temporary() string {
	return fmt.Sprintf("/tmp/kustomization-%d", rand.Uint32())
}
