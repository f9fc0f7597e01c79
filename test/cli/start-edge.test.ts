import { expect, it } from 'vitest';
import packageJson from '../../package.json' with { type: 'json' };

it('npm run start:edge listens on 8787 as localhost, and lets port and host be chosen', async () => {
  const [program, script] = packageJson.scripts['start:edge'].split(' ');
  expect(program).toBe('node');
  const { edgeWords } = await import(`../../${script}`);
  const words = (...given: string[]) => edgeWords(given).join(' ');
  expect(words()).toBe(
    'dev --local --port 8787 --host localhost:8787 --upstream-protocol http --var RELAY_PUBLIC_URL:',
  );
  expect(words('--port', '9000')).toBe(
    'dev --local --host localhost:9000 --upstream-protocol http --var RELAY_PUBLIC_URL: --port 9000',
  );
  expect(words('--port=9000', '--host', 'relay.test')).toBe(
    'dev --local --upstream-protocol http --var RELAY_PUBLIC_URL: --port=9000 --host relay.test',
  );
  expect(words('--upstream-protocol', 'https', '--var', 'A:b')).toBe(
    'dev --local --port 8787 --host localhost:8787 --var RELAY_PUBLIC_URL: --upstream-protocol https --var A:b',
  );
});
