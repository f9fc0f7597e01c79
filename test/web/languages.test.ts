import { expect, it, onTestFinished, vi } from 'vitest';
import { createI18n, type Table } from '../../handlers/web/shared/i18n.ts';

const ROW = ['Ja', 'Sí', 'はい', 'Sim', '是'] as const;

it('keeps the last language chosen when an earlier one loads more slowly', async () => {
  vi.stubGlobal('document', { documentElement: { lang: '' } });
  onTestFinished(() => void vi.unstubAllGlobals());
  const loads: ((table: { default: Table }) => void)[] = [];
  const i18n = createI18n([() => new Promise((resolve) => loads.push(resolve))]);
  const slow = i18n.choose('de');
  const quick = i18n.choose('zh');
  await vi.waitFor(() => expect(loads).toHaveLength(2));
  loads[1]?.({ default: { 'Indeed!': ROW } });
  await quick;
  loads[0]?.({ default: { 'Indeed!': ROW } });
  await slow;
  expect([i18n.language, i18n.t('Indeed!'), document.documentElement.lang]).toEqual(['zh-Hans', '是', 'zh-Hans']);
});
