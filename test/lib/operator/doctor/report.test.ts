import { expect, it } from 'vitest';
import type { Diagnosis } from '../../../../lib/operator/doctor/doctor.ts';
import { createDoctor } from '../../../../lib/operator/doctor/report.ts';

const CHECK = { id: 'relay-loopback', status: 'warn', summary: 'it is silent', next: 'Start it.', isUnknown: true };
const answered = { ok: true, status: 200 };
const relay = { port: 8767, info: answered };
const standard = {
  api: { capabilities: answered, toolsets: answered },
  dashboard: { status: answered, manage_surface: { kind: 'dashboard' } },
};
const diagnosis = { relay, standard, checks: [CHECK] } as unknown as Diagnosis;

it('contract 09 §4: one run at a time, shared by its callers; the next call is a new one', async () => {
  const runs: { resolve(diagnosis: Diagnosis): void; reject(error: Error): void }[] = [];
  const doctor = createDoctor(() => new Promise<Diagnosis>((resolve, reject) => runs.push({ resolve, reject })));
  const both = Promise.all([doctor.report(), doctor.report()]);
  expect(runs).toHaveLength(1);
  runs[0]?.resolve(diagnosis);
  const [first, second] = await both;
  expect(first).toBe(second);
  expect(first).toEqual({
    schema_version: 1,
    ...{ relay, standard },
    checks: [{ id: 'relay-loopback', status: 'warn', summary: 'it is silent' }],
    groups: [
      {
        title: 'Relay',
        checks: [{ id: 'relay-loopback', status: 'warn', summary: 'it is silent', next: 'Start it.', unknown: true }],
      },
    ],
  });

  const failing = doctor.report();
  runs[1]?.reject(new Error('no host'));
  await expect(failing).rejects.toThrow('no host');
  void doctor.report();
  expect(runs).toHaveLength(3);
});
