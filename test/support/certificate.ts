import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { TestContext } from 'vitest';

const ARGUMENTS = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost';

/** Makes a self-signed certificate and its key in `directory`. Skips the test where there is no openssl. */
export async function selfSigned(context: TestContext, directory: string): Promise<{ cert: string; key: string }> {
  const [cert, key] = [join(directory, 'cert.pem'), join(directory, 'key.pem')];
  try {
    await promisify(execFile)('openssl', [...ARGUMENTS.split(' '), '-keyout', key, '-out', cert]);
  } catch (error) {
    context.skip(`no certificate can be made here with openssl: ${error}`);
  }
  return { cert, key };
}
