import { spawn } from 'node:child_process';

/**
 * Opens a URL with the system's own program. listhen can do that too, but by a copy of `xdg-open` in the temporary
 * directory: whatever another user has put there under that name would run as this one. `failed` is called when there is
 * no such program.
 */
export function openInBrowser(
  url: string,
  env: Record<string, string | undefined>,
  failed: (error: Error) => void,
): void {
  const program = process.platform === 'darwin' ? 'open' : 'xdg-open';
  const child = spawn(program, [url], { detached: true, stdio: 'ignore', env });
  child.on('error', failed);
  child.unref();
}
