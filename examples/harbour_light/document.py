"""All pages in their order, and the file they make."""

from __future__ import annotations

import io
import zlib
from importlib.metadata import version

from reportlab.pdfgen.canvas import Canvas

from harbour_light import (
    business,
    closing,
    governance,
    notes,
    opening,
    performance,
    responsibility,
    scans,
    statements,
    strategy,
    theme,
)
from harbour_light.sheet import PagePlan, draw_page

PLANS = (
    PagePlan("cover", opening.SECTION, "Cover", opening.cover, dressed=False),
    PagePlan("contents", opening.SECTION, "Contents", opening.contents),
    PagePlan("glance", opening.SECTION, "The year at a glance", opening.at_a_glance),
    PagePlan("chairman", opening.SECTION, "Chairman’s letter", opening.chairmans_letter),
    PagePlan("chief", opening.SECTION, "Chief Executive’s review", opening.chief_executives_review),
    PagePlan("model", strategy.SECTION, "Business model", strategy.business_model),
    PagePlan("strategy", strategy.SECTION, "Strategy", strategy.strategy),
    PagePlan("kpi", strategy.SECTION, "Key performance indicators", strategy.key_figures),
    PagePlan("market", strategy.SECTION, "Our markets", strategy.market),
    PagePlan("beacons", business.SECTION, "Beacons", business.beacons),
    PagePlan("certificate", scans.SECTION, "Certificate", scans.certificate, dressed=False),
    PagePlan("ports", business.SECTION, "Port Services", business.port_services),
    PagePlan("offshore", business.SECTION, "Offshore", business.offshore),
    PagePlan("places", business.SECTION, "Where we work", business.where_we_work),
    PagePlan("research", business.SECTION, "Research and development", business.research),
    PagePlan("people", responsibility.SECTION, "People", responsibility.people),
    PagePlan("safety", responsibility.SECTION, "Health and safety", responsibility.safety),
    PagePlan("climate", responsibility.SECTION, "Climate", responsibility.climate),
    PagePlan("assurance", scans.SECTION, "Assurance", scans.assurance, dressed=False),
    PagePlan("nature", responsibility.SECTION, "Nature and neighbours", responsibility.nature),
    PagePlan("review", performance.SECTION, "Financial review", performance.financial_review),
    PagePlan(
        "viability",
        performance.SECTION,
        "Risk management and viability",
        performance.risk_management,
    ),
    PagePlan("risks", performance.SECTION, "Principal risks", performance.principal_risks),
    PagePlan("board", governance.SECTION, "Board of directors", governance.board),
    PagePlan(
        "governance", governance.SECTION, "Corporate governance", governance.corporate_governance
    ),
    PagePlan("audit", governance.SECTION, "Audit committee report", governance.audit_committee),
    PagePlan("policy", governance.SECTION, "Remuneration report", governance.remuneration_policy),
    PagePlan("pay", governance.SECTION, "Directors’ pay in 2024", governance.directors_pay),
    PagePlan(
        "auditor", statements.SECTION, "Independent auditor’s report", statements.auditors_report
    ),
    PagePlan(
        "income", statements.SECTION, "Consolidated income statement", statements.income_statement
    ),
    PagePlan("balance", statements.SECTION, "Consolidated balance sheet", statements.balance_sheet),
    PagePlan("cash", statements.SECTION, "Consolidated cash flow statement", statements.cash_flow),
    PagePlan(
        "cash2",
        statements.SECTION,
        "Cash flow statement, continued",
        statements.cash_flow_continued,
        continues=True,
    ),
    PagePlan(
        "equity", statements.SECTION, "Changes in equity and policies", statements.changes_in_equity
    ),
    PagePlan("segments", notes.SECTION, "Note 2. Segments", notes.segments),
    PagePlan("capex", notes.SECTION, "Note 3. Capital expenditure", notes.capital_expenditure),
    PagePlan("debt", notes.SECTION, "Note 4. Borrowings and debt maturity", notes.borrowings),
    PagePlan("other", notes.SECTION, "Notes 5 to 11", notes.other_notes),
    PagePlan("glossary", closing.SECTION, "Glossary", closing.glossary),
    PagePlan("holders", closing.SECTION, "Information for shareholders", closing.shareholders),
)


def toolchain() -> str:
    """Name all that decides the bytes of the file besides this code."""
    packages = ("numpy", "pillow", "pypdfium2", "reportlab")
    made_with = [f"{package} {version(package)}" for package in packages]
    return ", ".join([*made_with, f"zlib {zlib.ZLIB_RUNTIME_VERSION}"])


def build() -> bytes:
    """Make the report: the same bytes whenever the toolchain is the same."""
    stream = io.BytesIO()
    size = (theme.PAGE_WIDTH, theme.PAGE_HEIGHT)
    canvas = Canvas(stream, pagesize=size, pageCompression=1, invariant=1, lang="en-GB")
    canvas.setTitle(f"{theme.COMPANY}: {theme.REPORT}")
    canvas.setAuthor(theme.COMPANY)
    canvas.setSubject("An example document: the company and its figures are invented")
    canvas.setCreator(toolchain())
    for number, plan in enumerate(PLANS, start=1):
        canvas.bookmarkPage(plan.key)
        if not plan.continues:
            canvas.addOutlineEntry(plan.title, plan.key, level=0)
        draw_page(canvas, plan, number, PLANS)
        canvas.showPage()
    canvas.save()
    return stream.getvalue()
