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

/** A private authority and a certificate of it for `localhost`, all in PEM files in `directory`. */
export async function privateAuthority(
  context: TestContext,
  directory: string,
  name = 'authority',
): Promise<{ ca: string; cert: string; key: string }> {
  const file = (kind: string) => join(directory, `${name}-${kind}.pem`);
  const [ca, caKey, cert, key] = [file('ca'), file('ca-key'), file('cert'), file('key')];
  const newKey = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2'.split(' ');
  const run = (...args: string[]) => promisify(execFile)('openssl', [...newKey, ...args]);
  try {
    await run('-subj', `/CN=${name}`, '-keyout', caKey, '-out', ca);
    const names = ['-addext', 'subjectAltName=DNS:localhost', '-addext', 'basicConstraints=CA:FALSE'];
    await run('-subj', '/CN=localhost', ...names, '-CA', ca, '-CAkey', caKey, '-keyout', key, '-out', cert);
  } catch (error) {
    context.skip(`no certificate can be made here with openssl: ${error}`);
  }
  return { ca, cert, key };
}
