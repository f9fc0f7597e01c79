import { Button, Notice } from './components.tsx';
import { useT } from './i18n.ts';
import { VERSION } from './version.ts';

/** Reports that the relay's version differs from this page's. `version` is the relay's, if known. */
export function VersionNotice({ version }: { version: string | undefined }) {
  const t = useT();
  if (version === undefined || version === VERSION) return null;
  return (
    <Notice action={<Button onClick={() => location.reload()}>{t('Reload')}</Button>}>
      {t('The relay is now version {version}, and this page is of {own}.', { version, own: VERSION })}
    </Notice>
  );
}
