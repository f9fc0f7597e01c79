import { Icon } from '../../shared/icons.tsx';
import { useTitle } from '../../shared/router.ts';

/** The title of a place below the list, also set as the page title, with a link back. */
export function BackLink({ href, label, title }: { href: string; label: string; title: string }) {
  useTitle(title);
  return (
    <div class="row line">
      <a class="button plain icon-only" href={href} aria-label={label} title={label}>
        <Icon name="back" />
      </a>
      <h2 class="grow">{title}</h2>
    </div>
  );
}
